package worker_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"triphammer/server/run"
	"triphammer/server/run/event"
	"triphammer/server/run/task"
	"triphammer/server/secret"
	"triphammer/server/store"
	"triphammer/server/worker"
)

// leaving is an executor whose agent leaves artifacts.
type leaving struct {
	task.Executor
	leave func(task.Sink)
}

func (l leaving) Isolation() (string, []error)             { return "", nil }
func (l leaving) Preflight(*task.Task) (task.Place, error) { return task.Place{}, nil }
func (l leaving) Sweep(context.Context, func(string, time.Time) bool) error {
	return nil
}

func (l leaving) Start(_ context.Context, _ *task.Task, sink task.Sink) (task.Exit, error) {
	l.leave(sink)
	return task.Exit{}, nil
}

// TestArtifacts: what an agent leaves is kept within limits, without granted secrets, and
// the transcript tells of each (SPEC 15.6).
func TestArtifacts(t *testing.T) {
	w := newWorld(t)
	const value = "correct-horse-battery"
	if _, err := w.store.Secrets.Set(t.Context(), "TOKEN", secret.New(value)); err != nil {
		t.Fatal(err)
	}
	png := "\x89PNG\r\n\x1a\n" + strings.Repeat("x", 50)
	file := func(name, content string) func(task.Sink) error {
		return func(s task.Sink) error { return s.Keep(event.Artifact{Name: name}, strings.NewReader(content)) }
	}
	link := func(title, url string) func(task.Sink) error {
		return func(s task.Sink) error { return s.Keep(event.Artifact{Name: title, URL: url}, nil) }
	}
	cases := []struct {
		keep                         func(task.Sink) error
		kind, name, url, media, text string
		omitted                      string // a part of why
	}{
		{file("out/report.txt", "It is "+value+"."), "FILE", "out/report.txt", "", "text/plain", "It is [redacted].", ""},
		{file("page.png", png), "SCREENSHOT", "page.png", "", "image/png", png, ""},
		{file("fake.png", "\x00\x01"+base64.StdEncoding.EncodeToString([]byte(value))), "FILE", "fake.png", "", "application/octet-stream", "\x00\x01[redacted]", ""},
		{file("x.svg", "<svg/>"), "SCREENSHOT", "x.svg", "", "image/svg+xml", "<svg/>", ""},
		{file("changes.patch", "--- a\n"), "FILE", "changes.patch", "", "text/x-diff", "--- a\n", ""},
		{file("empty", ""), "FILE", "empty", "", "text/plain", "", ""},
		{file("/abs/../a.txt", "x"), "FILE", "a.txt", "", "text/plain", "x", ""},
		{file(value+".txt", "x"), "FILE", "[redacted].txt", "", "text/plain", "x", ""},
		{file("../up.txt", "x"), "FILE", "../up.txt", "", "", "", "its name"},
		{file("a\nb", "x"), "FILE", "a b", "", "", "", "its name"},
		{file("large", strings.Repeat("x", 1001)), "FILE", "large", "", "", "", "larger than"},
		{file("just", strings.Repeat("x", 1000)), "FILE", "just", "", "text/plain", strings.Repeat("x", 1000), ""},
		{file("another", strings.Repeat("x", 900)), "FILE", "another", "", "", "", "the artifacts of a run can have"},
		{link("One", "https://github.com/a/b/pull/1"), "PULL_REQUEST", "One", "https://github.com/a/b/pull/1", "", "", ""},
		{link("A review", "https://github.com/a/b/pull/1#pullrequestreview-2"), "EXTERNAL_REFERENCE", "A review", "https://github.com/a/b/pull/1#pullrequestreview-2", "", "", ""},
		{link("", "https://gitlab.example.com/g/s/p/-/merge_requests/2/diffs"), "PULL_REQUEST", "", "https://gitlab.example.com/g/s/p/-/merge_requests/2", "", "", ""},
		{link("", "https://Dev.Azure.com/o/my%20project/_git/r/pullrequest/5/?_a=files"), "PULL_REQUEST", "", "https://dev.azure.com/o/my%20project/_git/r/pullrequest/5", "", "", ""},
		{link("", "https://bitbucket.org/a/b/pull-requests/3"), "PULL_REQUEST", "", "https://bitbucket.org/a/b/pull-requests/3", "", "", ""},
		{link("", "http://gitea.local:3000/a/b/pulls/4"), "PULL_REQUEST", "", "http://gitea.local:3000/a/b/pulls/4", "", "", ""},
		{link("", "https://github.com/a/b/pulls"), "EXTERNAL_REFERENCE", "", "https://github.com/a/b/pulls", "", "", ""},
		{link("", "https://example.com/?t="+value), "EXTERNAL_REFERENCE", "", "https://example.com/?t=[redacted]", "", "", ""},
		{link("x", "javascript:alert(1)"), "EXTERNAL_REFERENCE", "x javascript:alert(1)", "", "", "", "no link"},
		{link("", "file:///etc/passwd"), "EXTERNAL_REFERENCE", "file:///etc/passwd", "", "", "", "no link"},
		{link("", "https://me:pw@example.com/"), "EXTERNAL_REFERENCE", "", "https://me:xxxxx@example.com/", "", "", "password"},
	}
	broken := 0
	leave := func(s task.Sink) {
		for _, c := range cases {
			if err := c.keep(s); err != nil {
				t.Error(c.name, err)
			}
		}
		if err := s.Keep(event.Artifact{Name: "broken"}, io.MultiReader(strings.NewReader(strings.Repeat("x", 600)), iotest.ErrReader(io.ErrClosedPipe))); err != nil {
			broken++
		}
	}
	w.start(worker.Config{Config: run.Config{MaxRuns: 1}, ArtifactLimit: 1000, ArtifactsLimit: 1800, Executor: leaving{leave: leave}}, "")
	id := w.enqueue(run.Spec{Environment: environment("true"), Secrets: []string{"TOKEN"}})
	w.wants(w.finished(id), store.Succeeded, "")
	if broken != 1 {
		t.Error("a stream that breaks is no error of Keep")
	}
	var told []event.Artifact
	for _, e := range w.events(id) {
		if e.Kind == event.KindArtifact {
			var a event.Artifact
			if err := json.Unmarshal(e.Data, &a); err != nil {
				t.Fatal(err)
			}
			told = append(told, a)
		}
	}
	rows, err := w.store.Artifacts.Of(t.Context(), id)
	if err != nil || len(told) != len(cases)+1 {
		t.Fatalf("%v, %d events", err, len(told))
	}
	kept := rows[id]
	for i, c := range cases {
		a := told[i]
		if a.Type != c.kind || a.Name != c.name || a.URL != c.url || !strings.Contains(a.Omitted, c.omitted) || (a.Omitted == "") != (c.omitted == "") {
			t.Errorf("%d: the transcript has %+v, want %s %q %q, %q", i, a, c.kind, c.name, c.url, c.omitted)
		}
		if c.omitted != "" {
			continue
		}
		row := kept[0]
		kept = kept[1:]
		if row.ID.String() != a.ID || row.Type != c.kind || row.Name != c.name || row.URL != c.url || row.MediaType != c.media || row.Size != a.Size {
			t.Errorf("%d: kept %+v, told %+v", i, row, a)
		}
		if c.url != "" {
			continue
		}
		f, err := w.store.Artifacts.Open(t.Context(), row)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(f)
		if _ = f.Close(); string(text) != c.text || err != nil {
			t.Errorf("%s holds %q, %v, want %q", c.name, text, err, c.text)
		}
	}
	if len(kept) > 0 {
		t.Errorf("%d more are kept", len(kept))
	}
}
