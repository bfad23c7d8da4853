package factory

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/schema"
)

// Report is what a file says of what is told of runs where their events came from (SPEC 22.1).
type Report struct {
	Said  bool     // the file has the key report
	Kinds []string // thread, check; empty: nothing
	Text  string   // full or link; empty: not said
}

// takesAPI tells whether a sender's API is of use.
func takesAPI(s *native.Sender) bool { return s.Asks() || len(s.Answers) > 0 }

// Reports is what is told of the runs of an automation that a webhook's events start. The
// automation's own keys win over the webhook's. brief: the outcome and the link alone.
func (a *Automation) Reports(w *Webhook) (kinds []string, brief bool) {
	if kinds = w.Report.Kinds; a.Report.Said {
		kinds = a.Report.Kinds
	}
	return kinds, cmp.Or(a.Report.Text, w.Report.Text) == "link"
}

// report reads the keys report and reportText.
func report(d *document) Report {
	kinds := d.Root.Get("report")
	r := Report{Said: kinds != nil, Kinds: textsOf(kinds), Text: textOf(d.Root.Get("reportText"))}
	if single := textOf(kinds); single != "" && single != "none" {
		r.Kinds = []string{single}
	}
	r.Kinds = slices.DeleteFunc(r.Kinds, func(kind string) bool { return kind != "thread" && kind != "check" }) // reported before
	return r
}

// webhookReport reads what a webhook file says of answers, and says what cannot be (SPEC 22.1).
func (l *loader) webhookReport(d *document, w *Webhook) Report {
	r := report(d)
	if r.Said = false; r.Text == "full" { // the default
		r.Text = ""
	}
	if l.opt.Strict || len(r.Kinds) == 0 {
		return r
	}
	if !d.suits(w, "report", func(s *native.Sender) bool { return len(s.Answers) > 0 }, "%s takes no answer") {
		return r
	}
	at, s := d.Root.KeyAt("report"), w.Sender()
	for _, kind := range r.Kinds {
		if !slices.Contains(s.Answers, kind) {
			d.Error(at, schema.InvalidValue, "write report: "+strings.Join(s.Answers, "|"), fmt.Sprintf("report cannot be %s: %s has no commits whose state could be set", kind, s.Title))
		}
	}
	if d.Root.Get("apiSecretName") == nil {
		d.Warn(at, schema.NoEffect, "add apiSecretName: NAME, with a secret with which "+s.Title+" takes answers",
			"report has no effect without apiSecretName: nothing can be told to "+s.Title)
	}
	return r
}

// reported warns of answers of an automation that nothing could take (SPEC 22.1).
func (l *loader) reported(d *document, a *Automation) {
	if text := a.Report.Text; text != "" && len(a.Report.Kinds) == 0 &&
		(a.Report.Said || !slices.ContainsFunc(l.factory.Webhooks, func(w *Webhook) bool { return len(w.Report.Kinds) > 0 })) {
		d.Warn(d.Root.KeyAt("reportText"), schema.NoEffect, "add report: thread, or take it out", "reportText has no effect without report: nothing is told")
	}
	if len(a.Report.Kinds) == 0 {
		return
	}
	at := d.Root.KeyAt("report")
	natives := 0
	for i := range a.Triggers {
		t := &a.Triggers[i]
		if t.Native == nil {
			continue
		}
		natives++
		s := t.Native.Event.Sender
		for _, kind := range a.Report.Kinds {
			if !slices.Contains(s.Answers, kind) {
				d.Warn(at, schema.NoEffect, "take "+kind+" out, or say report on the webhook files of the other senders",
					fmt.Sprintf("report: %s has no effect for %s of %s", kind, t.Event, s.Title))
			}
		}
		path := ""
		for _, w := range l.factory.Webhooks {
			if w.Sender() != s {
				continue
			}
			if path = cmp.Or(path, w.Path); w.APISecretName != "" {
				path = ""
				break
			}
		}
		if path != "" {
			d.Warn(at, schema.NoEffect, fmt.Sprintf("add apiSecretName: NAME to %s, with a secret with which %s takes answers", path, s.Title),
				fmt.Sprintf("report has no effect for %s: %s has no apiSecretName, so nothing can be told to %s", t.Event, path, s.Title))
		}
	}
	if natives == 0 {
		d.Warn(at, schema.NoEffect, "name an event of a sender in a trigger, such as provider: github, or take report out",
			"report has no effect: no trigger names an event of a sender, so nobody can be answered")
	}
}
