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

// backup answers with a copy of the store, which has no key in it.
func (s *Server) backup(ctx context.Context, c *call, all access.Whole) (done written, err error) {
	control := takeTime(c) // it is made first, at the pace that deliveries leave
	copied, err := all.Backup(ctx)
	if err != nil {
		return done, err
	}
	defer func() { _ = copied.Close() }() // and with it the copy is gone
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
		_ = control.SetWriteDeadline(time.Now().Add(readTime)) // in memory there is none
		if _, err := io.CopyN(c.Writer, copied, min(left, sentAtOnce)); err != nil {
			panic(http.ErrAbortHandler) // whoever reads sees that it ended too early
		}
	}
	return done, nil
}

// takeTime ends the deadlines of a request that takes as long as there is data.
func takeTime(c *call) *http.ResponseController {
	control := http.NewResponseController(c.Writer)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{}) // in memory there are none
	return control
}

// checkStore answers with what is wrong with what is stored.
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

// ShowReport is how a report is shown.
func ShowReport(r *store.Report) api.StoreReport {
	problems := r.Problems
	if problems == nil {
		problems = []string{}
	}
	return api.StoreReport{
		Sound: len(problems) == 0, Problems: problems, Schema: r.Schema, KeyID: r.KeyID, Rows: r.Rows, Newest: api.Time(r.Newest), Partial: r.Partial,
	}
}
