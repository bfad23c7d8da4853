package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"triphammer/server/api"
)

type transcriptOf struct {
	ofRun
	After  int64    `json:"after_event,omitempty" jsonschema:"only events after this number"`
	Before int64    `json:"before_event,omitempty" jsonschema:"only events before this number"`
	Newest bool     `json:"newest,omitempty" jsonschema:"the last events instead of the first ones"`
	Kinds  []string `json:"kinds,omitempty" jsonschema:"only events of these kinds, such as message, command or result; get_run has them in detail.events"`
	Limit  int      `json:"limit,omitempty" jsonschema:"how many events at most; default 50"`
}

// transcript reads a page of a transcript, with as many of its events as an answer holds.
func transcript(ctx context.Context, p *Peer, in transcriptOf) (json.RawMessage, error) {
	in.Limit = cmp.Or(in.Limit, 50)
	query := struct {
		After  int64    `json:"after,omitempty"`
		Before int64    `json:"before,omitempty"`
		Newest bool     `json:"newest,omitempty"`
		Kinds  []string `json:"kind,omitempty"`
		Limit  int      `json:"limit"`
	}{in.After, in.Before, in.Newest, in.Kinds, in.Limit}
	text, err := p.get(ctx, in.path("transcript"), query)
	if err != nil {
		return nil, err
	}
	var t api.Transcript
	if err := json.Unmarshal(text, &t); err != nil {
		return nil, err
	}
	for size := len(text); size > maxAnswer*3/4 && len(t.Events) > 1; {
		last := len(t.Events) - 1
		drop, keep := t.Events[last], t.Events[:last]
		if in.Newest {
			drop, keep = t.Events[0], t.Events[1:]
		}
		size -= len(drop.Data) + 100
		t.Events = keep
		next := keep[len(keep)-1].Seq
		if in.Newest {
			next = keep[0].Seq
		}
		t.PageInfo = api.PageInfo{HasNextPage: true, NextCursor: fmt.Sprint(next)}
	}
	return encode(t)
}
