package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"baton/store/raftstore"
	"baton/store/remotestore"
)

// backupReport is what the commands about backups print.
type backupReport struct {
	File    string    `json:"file"`
	Cluster string    `json:"cluster"`
	TakenAt time.Time `json:"taken_at"`
	Groups  int       `json:"groups"`
	Leases  int       `json:"leases"`
	Bytes   int       `json:"bytes,omitempty"`
	Data    string    `json:"data,omitempty"`
}

func reportOf(file string, b *raftstore.Backup) backupReport {
	return backupReport{File: file, Cluster: b.Cluster, TakenAt: b.TakenAt, Groups: b.Groups(), Leases: b.Leases()}
}

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "backup FILE",
		Short: "Write the state of the cluster to a file",
		Long: `Writes one state of the cluster, with everything in it that was acknowledged
before, while leases go on. The file is new, is checked before it gets its name,
and ends with a checksum of itself. "baton restore" makes a new cluster of it.`,
		Example: `  baton backup baton-$(date +%F).backup`,
		Args:    exactly("FILE"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withClient(func(client *remotestore.Client) error {
				report, err := backUp(c.Context(), client, args[0])
				if err != nil {
					return err
				}
				return a.print(report, func(w io.Writer) error {
					_, err := fmt.Fprintf(w, "%s holds %d groups of cluster %s, in %d bytes\n", report.File, report.Groups, report.Cluster, report.Bytes)
					return err
				})
			})
		},
	}
}

// backUp writes a backup to a file that is not there yet.
func backUp(ctx context.Context, client *remotestore.Client, file string) (report backupReport, err error) {
	if _, err := os.Lstat(file); err == nil {
		return report, usagef("%s is there already: a backup is written to a new file", file)
	}
	from, err := client.Backup(ctx)
	if err != nil {
		return report, err
	}
	defer func() { _ = from.Close() }() // all of it was read, or it is not wanted
	var whole bytes.Buffer
	if _, err := io.Copy(&whole, from); err != nil {
		return report, fmt.Errorf("read the backup: %w", err)
	}
	b, err := raftstore.ReadBackup(bytes.NewReader(whole.Bytes()))
	if err != nil {
		return report, fmt.Errorf("what the server sent is no backup: %w", err)
	}
	report = reportOf(file, b)
	report.Bytes = whole.Len()
	return report, writeNew(file, whole.Bytes())
}

// writeNew writes a file that has its name only when it is whole and on the disk.
func writeNew(file string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // it has another name by then, or is not wanted
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", file, err)
	}
	return os.Rename(f.Name(), file)
}

func (a *app) restoreCommand() *cobra.Command {
	var cfg raftstore.RestoreConfig
	cmd := &cobra.Command{
		Use:   "restore FILE",
		Short: "Make the data directory of a new cluster out of a backup",
		Long: `Makes a cluster of one server out of a backup, in an empty directory; no server
runs on it yet. Others are added to it as to any cluster.

The old cluster must be gone for good, because nobody knows what it granted after
the backup was taken. So every leadership of the backup is over, the terms go on from
what the clock says, which is beyond all that there were, and the new cluster grants
nothing for ten minutes after its server has started: as long as the longest lease of
the old one. If you know that no leader of the old cluster is left, say why with
--i-know; the server logs it, and grants at once.`,
		Example: `  baton restore baton-2026-11-15.backup --data ./baton-data
  baton server --data ./baton-data`,
		Args: exactly("FILE"),
		RunE: func(_ *cobra.Command, args []string) error {
			f, err := os.Open(args[0])
			if err != nil {
				return usagef("%w", err)
			}
			defer func() { _ = f.Close() }() // it was only read
			b, err := raftstore.ReadBackup(f)
			if err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			report := reportOf(args[0], b)
			report.Data = cfg.Dir
			if err := b.Restore(cfg); err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			return a.print(report, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "%s is a new cluster with the %d groups that %s had on %s; start it with\n  baton server --data %s --server-id %s --peer %s\n",
					cfg.Dir, report.Groups, report.Cluster, report.TakenAt.Format(time.RFC3339), cfg.Dir, cfg.ID, cfg.Address)
				return err
			})
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&cfg.Dir, "data", "./baton-data", "directory to make; if it is there it must be empty")
	fl.StringVar(&cfg.ID, "server-id", "s1", "name of the server that will run on it")
	fl.StringVar(&cfg.Address, "peer", "127.0.0.1:7402", "address of its peer port, by which others will reach it")
	fl.StringVar(&cfg.IKnow, "i-know", "", "why no leader of the old cluster can be left: the new one grants at once")
	return cmd
}
