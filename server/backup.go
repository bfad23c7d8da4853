package server

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/store"
)

// sentAtOnce is how much of a backup has readTime to arrive.
const sentAtOnce = 1 << 20

// backup answers with a copy of the store. The copy does not have the sealing key.
func (s *Server) backup(ctx context.Context, c *call, all access.Whole) (done written, err error) {
	control := takeTime(c) // the copy is made first, which can be slow beside deliveries
	copied, err := all.Backup(ctx)
	if err != nil {
		return done, err
	}
	defer func() { _ = copied.Close() }() // Close deletes the copy
	info, err := copied.Stat()
	if err != nil {
		return done, err
	}
	c.audit("store.backup", "store", "", fmt.Sprintf("%d bytes", info.Size()))
	c.Header("Content-Type", "application/vnd.sqlite3")
	c.Header("Content-Length", strconv.FormatInt(info.Size(), 10))
	c.Header("Content-Disposition", `attachment; filename="triphammer.db"`)
	c.Status(http.StatusOK)
	for left := info.Size(); left > 0; left -= sentAtOnce {
		_ = control.SetWriteDeadline(time.Now().Add(readTime)) // fails without a connection
		if _, err := io.CopyN(c.Writer, copied, min(left, sentAtOnce)); err != nil {
			panic(http.ErrAbortHandler) // the reader sees that the answer is incomplete
		}
	}
	c.audit(api.BackupSent, "store", "", fmt.Sprintf("%d bytes", info.Size()))
	return done, nil
}

// takeTime removes the deadlines of a request whose duration depends on the size of the
// store.
func takeTime(c *call) *http.ResponseController {
	control := http.NewResponseController(c.Writer)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{}) // they fail without a connection
	return control
}

// checkStore checks the store and answers with a report.
func (s *Server) checkStore(ctx context.Context, c *call, all access.Whole) (shown api.StoreReport, err error) {
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
