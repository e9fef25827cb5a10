// Package workset is the work that the leader of a fleet owns, as files that all
// its nodes can read: a table of pending jobs, and segments to be compacted.
//
// Nobody writes to it. What a leader has done is in its fenced checkpoints
// alone: how far it is, and a sum over everything before. Whoever knows the set
// can tell from the last sum that each piece was counted, and counted once.
//
// The segments are sparse: they are as long as they say, and hold a few pages
// each, so that a set of a hundred gigabytes costs next to no disk.
package workset

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
)

// Size is how much work there is.
type Size struct {
	Jobs         int64 `json:"jobs"`
	Segments     int64 `json:"segments"`
	SegmentBytes int64 `json:"segment_bytes"`
}

const (
	// BlockBytes is how much of a segment is compacted at once.
	BlockBytes = 64 << 20

	jobBytes  = 16 // when it is due, and what is to be done
	pageBytes = 4 << 10
	// pages is how many a segment holds that are not empty.
	pages = 4
)

// Blocks is how many pieces the segments have.
func (s Size) Blocks() int64 { return s.Segments * s.blocksEach() }

func (s Size) blocksEach() int64 { return (s.SegmentBytes + BlockBytes - 1) / BlockBytes }

func (s Size) validate() error {
	if s.Jobs < 1 || s.Segments < 1 || s.SegmentBytes < pageBytes {
		return fmt.Errorf("a set of %+v: want some jobs, and some segments of at least a page", s)
	}
	return nil
}

// Create makes a set in dir, which must be there.
func Create(dir string, size Size) error {
	if err := size.validate(); err != nil {
		return err
	}
	if err := createJobs(filepath.Join(dir, "jobs"), size.Jobs); err != nil {
		return fmt.Errorf("make the table of jobs: %w", err)
	}
	for i := range size.Segments {
		if err := createSegment(segmentPath(dir, i), i, size.SegmentBytes); err != nil {
			return fmt.Errorf("make segment %d: %w", i, err)
		}
	}
	text, err := json.Marshal(size)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "set.json"), text, 0o644)
}

func createJobs(path string, count int64) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	w := bufio.NewWriterSize(file, 1<<20)
	var job [jobBytes]byte
	for i := range count {
		binary.LittleEndian.PutUint64(job[:8], uint64(i)/1000)
		binary.LittleEndian.PutUint64(job[8:], mix(uint64(i)))
		if _, err := w.Write(job[:]); err != nil {
			return err
		}
	}
	return w.Flush()
}

func segmentPath(dir string, i int64) string {
	return filepath.Join(dir, fmt.Sprintf("segment-%04d", i))
}

func createSegment(path string, number, size int64) (err error) {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if err := file.Truncate(size); err != nil {
		return err
	}
	page := make([]byte, pageBytes)
	for i := range int64(pages) {
		for at := 0; at < pageBytes; at += 8 {
			binary.LittleEndian.PutUint64(page[at:], mix(uint64(number)<<32|uint64(i)<<16|uint64(at)))
		}
		at := (size / pages * i) / pageBytes * pageBytes
		if _, err := file.WriteAt(page[:min(pageBytes, size-at)], at); err != nil {
			return err
		}
	}
	return nil
}

// mix makes numbers that have nothing in common of such as have.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Set is a set of work that can be worked on. It is not safe for concurrent use.
type Set struct {
	Size
	dir     string
	jobs    *os.File
	buf     []byte
	segment *os.File // the one worked on last
	number  int64    // of it
}

// Open opens the set in dir.
func Open(dir string) (*Set, error) {
	text, err := os.ReadFile(filepath.Join(dir, "set.json"))
	if err != nil {
		return nil, fmt.Errorf("open the work set: %w", err)
	}
	s := &Set{dir: dir, buf: make([]byte, 64<<10*jobBytes)}
	if err := json.Unmarshal(text, &s.Size); err != nil {
		return nil, fmt.Errorf("open the work set: %w", err)
	}
	if err := s.validate(); err != nil {
		return nil, fmt.Errorf("open the work set: %w", err)
	}
	if s.jobs, err = os.Open(filepath.Join(dir, "jobs")); err != nil {
		return nil, fmt.Errorf("open the work set: %w", err)
	}
	return s, nil
}

// Close closes its files.
func (s *Set) Close() error {
	err := s.jobs.Close()
	if s.segment != nil {
		err = errors.Join(err, s.segment.Close())
	}
	return err
}

// Run does the jobs from first to last, which count from 1, and returns the
// sum over them.
func (s *Set) Run(first, last int64) (sum uint64, err error) {
	for at := first - 1; at < last; {
		n := min(last-at, int64(len(s.buf)/jobBytes))
		buf := s.buf[:n*jobBytes]
		if _, err := s.jobs.ReadAt(buf, at*jobBytes); err != nil {
			return 0, fmt.Errorf("read jobs from %d on: %w", at+1, err)
		}
		for i := range n {
			sum += mix(uint64(at+i+1) ^ binary.LittleEndian.Uint64(buf[i*jobBytes+8:]))
		}
		at += n
	}
	return sum, nil
}

// Compact goes over the blocks from first to last, which count from 1, and
// returns the sum over what they hold.
func (s *Set) Compact(first, last int64) (sum uint64, err error) {
	for block := first - 1; block < last; block++ {
		if err := s.open(block / s.blocksEach()); err != nil {
			return 0, err
		}
		from := block % s.blocksEach() * BlockBytes
		part, err := s.compact(block, from, min(from+BlockBytes, s.SegmentBytes))
		if err != nil {
			return 0, fmt.Errorf("compact segment %d from %d on: %w", s.number, from, err)
		}
		sum += part
	}
	return sum, nil
}

func (s *Set) open(number int64) (err error) {
	if s.segment != nil && s.number == number {
		return nil
	}
	if s.segment != nil {
		err = s.segment.Close()
		s.segment = nil
	}
	if err == nil {
		s.segment, err = os.Open(segmentPath(s.dir, number))
	}
	s.number = number
	return err
}

// seekData is lseek's SEEK_DATA: to the next byte that is not in a hole.
const seekData = 3

// compact reads what the segment holds between two places. Where nothing is, nothing
// is read; that the block was gone over counts all the same.
func (s *Set) compact(block, from, to int64) (sum uint64, err error) {
	sum = mix(uint64(block) + 1)
	for at := from; at < to; at += pageBytes {
		if at, err = s.segment.Seek(at, seekData); errors.Is(err, syscall.ENXIO) || err == nil && at >= to {
			return sum, nil // a hole to the end
		} else if err != nil {
			return 0, err
		}
		at -= at % pageBytes
		page := s.buf[:min(pageBytes, to-at)]
		if _, err := s.segment.ReadAt(page, at); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := 0; i+8 <= len(page); i += 8 {
			if word := binary.LittleEndian.Uint64(page[i:]); word != 0 {
				sum += mix(word ^ uint64(at) ^ uint64(i))
			}
		}
	}
	return sum, nil
}
