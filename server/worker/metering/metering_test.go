package metering

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"triphammer/server/run/price"
	"triphammer/server/run/task"
)

// book has room for everything, and counts the models.
type book map[string]bool

func (b book) InUSD() bool { return false }

func (b book) Enter(_ context.Context, e Entry) error {
	b[e.Model] = true
	return nil
}

func (b book) Settled(string, bool, Use, task.Call) {}

// TestModels: a run that names ever new models fills no store. Each model has a row there, also if no provider
// knows it.
func TestModels(t *testing.T) {
	b := book{}
	m := Meter{Prices: price.Standard(), Now: time.Now, Book: b}
	for i := range mostModels + 10 {
		r, err := m.Reserve(t.Context(), task.Ask{Model: fmt.Sprint("m", i), Input: 1, Output: 1})
		if (err == nil) != (i < mostModels) || err != nil && !strings.Contains(err.Error(), "100 models") {
			t.Fatal(i, err)
		}
		if err == nil {
			r.Settle(task.Call{Unsent: true})
		}
	}
	if _, err := m.Reserve(t.Context(), task.Ask{Model: "m0", Input: 1, Output: 1}); err != nil || len(b) != mostModels {
		t.Errorf("%v: %d models", err, len(b))
	}
}
