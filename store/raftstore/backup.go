package raftstore

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"baton"
	"baton/internal/leasefsm"
)

// A backup is one line that says what it is, one of JSON about it, the record,
// and a checksum of all of that. It is one state of the cluster, whole or refused.

// BackupInfo is what a backup says of itself.
type BackupInfo struct {
	// Cluster is the one it is of, Server the member that wrote it.
	Cluster string `json:"cluster"`
	Server  string `json:"server"`
	// Applied is the last entry that is in it.
	Applied uint64    `json:"applied"`
	TakenAt time.Time `json:"taken_at"`
	// Bytes is how long the record is that follows.
	Bytes int `json:"bytes"`
}

const backupTitle = "baton backup 1\n"

// ErrBackup: what was to be restored is no backup, or not a whole one.
var ErrBackup = errors.New("not a whole backup")

// Backup returns the state of the cluster, with everything in it that was
// acknowledged before the call. Leases go on meanwhile.
func (s *Store) Backup(ctx context.Context) ([]byte, error) {
	a, err := s.do(ctx, request{Op: "index"})
	if err != nil {
		return nil, err
	}
	if err := s.awaitApplied(ctx, a.Index); err != nil {
		return nil, unavailable("backup", err)
	}
	s.mu.Lock()
	info := BackupInfo{Cluster: s.cluster, Server: s.cfg.ID, Applied: s.applied, TakenAt: time.Now()}
	c := s.copyRecord()
	s.mu.Unlock()
	return encodeBackup(info, c.bytes())
}

func encodeBackup(info BackupInfo, record []byte) ([]byte, error) {
	info.Bytes = len(record)
	about, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	b := make([]byte, 0, len(backupTitle)+len(about)+1+len(record)+sha256.Size)
	b = append(b, backupTitle...)
	b = append(append(b, about...), '\n')
	b = append(b, record...)
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// Backup is one that was read, and found to be whole.
type Backup struct {
	BackupInfo
	record *leasefsm.Record
}

// Groups is how many there are in it, and Leases how many of them were held.
func (b *Backup) Groups() int { return len(b.record.Groups()) }

// Leases is how many groups were held.
func (b *Backup) Leases() int { return b.record.Held() }

// maxAbout is far more than a backup says of itself.
const maxAbout = 64 << 10

// ReadBackup reads a backup and checks it. What is anything else, or is cut or
// damaged anywhere, is ErrBackup.
func ReadBackup(from io.Reader) (*Backup, error) {
	sum := sha256.New()
	r := bufio.NewReader(from)
	title := make([]byte, len(backupTitle))
	if _, err := io.ReadFull(r, title); err != nil || string(title) != backupTitle {
		return nil, fmt.Errorf("%w: it does not begin as one of this version does", ErrBackup)
	}
	about, err := readLine(r, maxAbout)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	b := &Backup{}
	if err := json.Unmarshal(about, &b.BackupInfo); err != nil || b.Bytes < 0 {
		return nil, fmt.Errorf("%w: what it says of itself cannot be read", ErrBackup)
	}
	rest, err := io.ReadAll(io.LimitReader(r, int64(b.Bytes)+sha256.Size+1))
	if err != nil {
		return nil, fmt.Errorf("read the backup: %w", err)
	}
	if len(rest) != b.Bytes+sha256.Size {
		return nil, fmt.Errorf("%w: it is cut off, or something follows it", ErrBackup)
	}
	record := rest[:b.Bytes]
	for _, part := range [][]byte{title, about, record} {
		sum.Write(part)
	}
	if !bytes.Equal(sum.Sum(nil), rest[b.Bytes:]) {
		return nil, fmt.Errorf("%w: its checksum does not match", ErrBackup)
	}
	if b.record, err = leasefsm.Restore(record); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBackup, err)
	}
	return b, nil
}

// readLine reads a line of at most so many bytes, its end included.
func readLine(r *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for len(line) < most {
		c, err := r.ReadByte()
		if err != nil {
			return nil, fmt.Errorf("it is cut off: %w", err)
		}
		line = append(line, c)
		if c == '\n' {
			return line, nil
		}
	}
	return nil, errors.New("what it says of itself has no end")
}

// highest is the highest term that the backup knows of.
func (b *Backup) highest() baton.Term { return max(b.record.Floor(), b.record.HighestTerm()) }
