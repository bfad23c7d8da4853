package executor

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"triphammer/server/run/task"
	"triphammer/server/worker/metering"
)

// TestPodBook: what a pod has used counts after a restart of its container too, what it asks for is
// waited for, and after its end nothing is sent.
func TestPodBook(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "models")
	grant := func(g task.Grant) {
		t.Helper()
		data, err := json.Marshal(g)
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, GrantFile), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var told []task.Counted
	open := func() *podBook {
		t.Helper()
		b, err := newPodBook(task.Terms{Tokens: true}, folder, file, func(c task.Counted) { told = append(told, c) })
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	request := metering.Entry{Model: "m", Requests: 1, To: metering.Use{Tokens: task.Tokens{Input: 1000, Output: 500}}}
	enter := func(b *podBook) *metering.Crossed {
		t.Helper()
		err := b.Enter(t.Context(), request)
		crossed := (*metering.Crossed)(nil)
		if err != nil && !errors.As(err, &crossed) {
			t.Fatal(err)
		}
		return crossed
	}
	b := open()
	if err := b.Enter(t.Context(), request); err == nil {
		t.Fatal("a request needs no grant")
	}
	grant(task.Grant{Tokens: 2000})
	if crossed := enter(b); crossed != nil || len(told) != 2 || told[0].Ask == nil || told[0].Ask.Tokens != 3000 || told[1].Models[0].Used.Total() != 1500 {
		t.Fatalf("%+v, told %+v", crossed, told)
	}
	b = open() // the container was started again
	crossed := enter(b)
	if crossed == nil || crossed.Tokens != 500 || crossed.Wait == nil || len(told) != 2 { // it has asked already
		t.Fatalf("%+v, told %+v", crossed, told)
	}
	grant(task.Grant{Tokens: 2900, Answered: 1, Last: "the budget is used up"})
	if err := crossed.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	if crossed = enter(b); crossed == nil || crossed.Wait != nil || crossed.Tokens != 1400 {
		t.Fatalf("%+v", crossed)
	}
	if err := crossed.Over("more"); err == nil || err.Error() != "the budget is used up, and more" || told[len(told)-1].Over != "more" {
		t.Error(err)
	}
	b.end()
	if last := told[len(told)-1]; !last.Final || last.Models[0].Used.Total() != 1500 {
		t.Errorf("%+v", last)
	}
	if err := open().Enter(t.Context(), metering.Entry{Model: "m"}); err == nil {
		t.Error("a request is sent after the end")
	}
}

// TestPodWaits: without a worker, a request that needs more than was granted is refused in the end.
func TestPodWaits(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, GrantFile), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		b := &podBook{terms: task.Terms{Tokens: true}, folder: folder}
		begun := time.Now()
		if err := b.wait(context.Background(), 1); err == nil || time.Since(begun) != askTime {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
	})
}
