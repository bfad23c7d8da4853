package server

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"triphammer/server/store/copy"

	"triphammer/server/api"
	"triphammer/server/hosted"
	"triphammer/server/store"
)

// sentAtOnce is how much of a backup has readTime to arrive.
const sentAtOnce = 1 << 20

// backup answers with a copy of all that the server keeps, but for the sealing key (docs/backup.md).
func (s *Server) backup(ctx context.Context, c *call, all *store.Store) (done written, err error) {
	control := takeTime(c) // the copies are made first, which can be slow beside deliveries
	defer all.Artifacts.Hold()()
	copied, err := copy.Backup(ctx, all)
	if err != nil {
		return done, err
	}
	defer func() { _ = copied.Close() }() // Close deletes the copy
	info, err := copied.Stat()
	if err != nil {
		return done, err
	}
	// What the store names is in the repositories, which only grow.
	bundles, err := os.MkdirTemp(s.cfg.Dir, "backup.*")
	if err != nil {
		return done, err
	}
	defer func() { _ = os.RemoveAll(bundles) }() // nothing else is in it
	repositories := filepath.Join(s.cfg.Dir, api.HostedFolder)
	names, err := hosted.Names(repositories)
	if err != nil {
		return done, err
	}
	branches := make(map[string]string)
	for _, name := range names {
		if branches[name], err = hosted.Bundle(ctx, filepath.Join(repositories, name+".git"), filepath.Join(bundles, name)); err != nil {
			return done, err
		}
	}
	c.audit("store.backup", "store", "", fmt.Sprintf("%d bytes", info.Size()))
	c.Header("Content-Type", "application/x-tar")
	c.Header("Content-Disposition", `attachment; filename="triphammer.tar"`)
	c.Status(http.StatusOK)
	w := &archiveWriter{Writer: tar.NewWriter(c.Writer), late: func() { _ = control.SetWriteDeadline(time.Now().Add(readTime)) }, buffer: make([]byte, sentAtOnce)}
	err = w.file(api.ArchivedStore, copied, nil)
	if err == nil {
		err = all.Artifacts.EachFile(func(name string, f *os.File) error { return w.file(api.ArchivedArtifacts+name, f, nil) })
	}
	for _, name := range names {
		if err == nil {
			err = w.bundle(filepath.Join(bundles, name), name, branches[name])
		}
	}
	if err == nil {
		err = w.WriteHeader(&tar.Header{Name: api.ArchivedEnd, Typeflag: tar.TypeReg, Mode: 0o600, ModTime: s.cfg.Now()})
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		s.cfg.Logger.Warn("a backup was not sent to its end", "error", err)
		panic(http.ErrAbortHandler) // the reader sees that the answer is incomplete
	}
	c.audit(api.BackupSent, "store", "", fmt.Sprintf("%d bytes", info.Size()))
	return done, nil
}

// archiveWriter writes a backup.
type archiveWriter struct {
	*tar.Writer
	late   func() // gives the next buffer its time to be sent
	buffer []byte
}

func (w *archiveWriter) bundle(path, name, branch string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // it was only read
	return w.file(api.ArchivedHosted+name, f, map[string]string{api.ArchivedBranch: branch})
}

func (w *archiveWriter) file(name string, f *os.File, records map[string]string) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime(), PAXRecords: records}
	w.late()
	err = w.WriteHeader(h)
	for left := info.Size(); err == nil && left > 0; {
		w.late() // fails without a connection
		var n int64
		n, err = io.CopyBuffer(w.Writer, io.LimitReader(f, min(left, sentAtOnce)), w.buffer)
		if left -= n; err == nil && n == 0 {
			err = io.ErrUnexpectedEOF // it was cut short
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// takeTime removes the deadlines of a request whose duration depends on the size of the
// store.
func takeTime(c *call) *http.ResponseController {
	control := http.NewResponseController(c.Writer)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{}) // they fail without a connection
	return control
}

// checkStore checks the store and answers with a report.
func (s *Server) checkStore(ctx context.Context, c *call, all *store.Store) (shown api.StoreReport, err error) {
	takeTime(c)
	if !s.checking.TryLock() {
		return shown, api.Refuse(api.Conflict, "the store is being checked already")
	}
	defer s.checking.Unlock()
	report, err := all.Check(ctx)
	if err != nil {
		return shown, err
	}
	return ShowReport(report), nil
}

// ShowReport converts a report for the API.
func ShowReport(r *store.Report) api.StoreReport {
	problems := r.Problems
	if problems == nil {
		problems = []string{}
	}
	return api.StoreReport{
		Sound: len(problems) == 0, Problems: problems, Schema: r.Schema, KeyID: r.KeyID, Rows: r.Rows, Newest: api.Time(r.Newest), Partial: r.Partial,
	}
}
