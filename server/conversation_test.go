package server

import (
	"encoding/json"
	"strings"
	"testing"

	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// TestAnnouncedActions: in a conversation, what a harness announces and then ends is one
// action with one result.
func TestAnnouncedActions(t *testing.T) {
	var step api.Step
	for i, e := range []event.Event{
		event.Tool{ID: "t1", Name: "Read", Started: true, Input: `{"path":"a"}`},
		event.Command{ID: "c1", Phase: "agent", Command: "make", Started: true},
		event.Command{ID: "c1", Phase: "agent", Command: "make", Output: "ok"},
		event.Tool{ID: "t1", Name: "Read", Output: "text"},
		event.Tool{ID: "t2", Name: "Grep", Input: `{"pattern":"x"}`, Failed: true},
		event.Tool{Name: "result", Output: "of an old transcript"},
	} {
		data, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		addEvent(&step, store.Event{Seq: int64(i + 1), Kind: e.Kind(), Data: data})
	}
	var got []string
	for _, m := range step.Messages {
		c := m.Content[0]
		if c["type"] == "action" {
			got = append(got, "begin "+c["id"].(string))
		} else {
			got = append(got, "end "+c["action_id"].(string)+" "+c["state"].(string))
		}
	}
	want := "begin t1, begin 3, end 3 completed, end t1 completed, begin t2, end t2 failed, begin 6, end 6 completed"
	if text := strings.Join(got, ", "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
