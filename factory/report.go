package factory

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"triphammer/factory/native"
	"triphammer/factory/signature"
	"triphammer/schema"
)

// Report is what a file says of what is told of runs where their events came from, or elsewhere (SPEC 22.1).
type Report struct {
	Said  bool     // the file has the key report
	Kinds []string // thread, check; empty: nothing
	Hook  Hook     // in place of Kinds
	Text  string   // full or link; empty: not said
}

// thread is the kind of answer that is a text where the event came from.
const thread = "thread"

// Hook is an address that gets signed messages about runs; none if URL is empty.
type Hook struct {
	URL        string
	SecretName string    // of the secret that signs
	At         schema.At // of SecretName
}

// Suits tells whether a value can sign messages to the address; nil: it can.
func (h Hook) Suits(value string) error {
	standard, _ := signature.Lookup("standard_webhooks")
	_, err := standard.Verifier(value)
	return err
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

// Tells is the address that is told of the runs of an automation that a webhook's deliveries start.
func (a *Automation) Tells(w *Webhook) Hook {
	if a.Report.Said {
		return a.Report.Hook
	}
	return w.Report.Hook
}

// report reads the keys report and reportText.
func report(d *document) Report {
	kinds := d.Root.Get("report")
	r := Report{Said: kinds != nil, Kinds: textsOf(kinds), Text: textOf(d.Root.Get("reportText"))}
	if single := textOf(kinds); single != "" && single != "none" {
		r.Kinds = []string{single}
	}
	r.Kinds = slices.DeleteFunc(r.Kinds, func(kind string) bool { return kind != thread && kind != "check" }) // reported before
	if kinds != nil && kinds.Kind == schema.Mapping {
		r.Hook = Hook{textOf(kinds.Get("url")), strings.TrimSpace(textOf(kinds.Get("secretName"))), kinds.KeyAt("secretName")}
	}
	return r
}

// hook checks the address in the key report.
func (l *loader) hook(d *document, r *Report) {
	if at := d.Root.Get("report"); r.Hook.URL != "" && !apiURL.MatchString(r.Hook.URL) {
		d.Error(at.Get("url").At, schema.InvalidValue, "such as https://ci.example.com/hooks/runs", "report.url takes an https address without a query")
	} else if r.Hook.SecretName != "" {
		l.later(d, r.Hook.At, "report.secretName", kindSecret, r.Hook.SecretName)
	}
}

// webhookReport reads what a webhook file says of answers, and says what cannot be (SPEC 22.1).
func (l *loader) webhookReport(d *document, w *Webhook) Report {
	r := report(d)
	if r.Text == "full" { // the default
		r.Text = ""
	}
	if l.opt.Strict {
		return r
	}
	if l.hook(d, &r); len(r.Kinds) == 0 {
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
	if dataCenter(w) {
		d.Warn(at, schema.NoEffect, "take report out, unless it is Jira Cloud: https://NAME.atlassian.net", "report has no effect with Jira Data Center: only Jira Cloud takes answers")
	}
	if d.Root.Get("apiSecretName") == nil {
		d.Warn(at, schema.NoEffect, "add apiSecretName: NAME, with a secret with which "+s.Title+" takes answers",
			"report has no effect without apiSecretName: nothing can be told to "+s.Title)
	}
	return r
}

// cloud are the addresses of the API of Jira Cloud; others are Jira Data Center, or this machine.
var cloud = regexp.MustCompile(`^(https://([A-Za-z0-9-]+\.atlassian(-us-gov-mod)?\.net|api\.atlassian\.com)(:\d+)?(/|$)|http://)`)

// dataCenter tells whether a webhook's sender is Jira Data Center, which has the events of Jira Cloud, but
// not the API that answers go to.
func dataCenter(w *Webhook) bool {
	s := w.Sender()
	return s != nil && s.Provider == "jira" && w.APIURL != "" && !cloud.MatchString(w.APIURL)
}

// reported warns of answers of an automation that nothing could take (SPEC 22.1).
func (l *loader) reported(d *document, a *Automation) {
	if text := a.Report.Text; text != "" && len(a.Report.Kinds) == 0 &&
		(a.Report.Said || !slices.ContainsFunc(l.factory.Webhooks, func(w *Webhook) bool { return len(w.Report.Kinds) > 0 })) {
		d.Warn(d.Root.KeyAt("reportText"), schema.NoEffect, "add report: thread, or take it out", "reportText has no effect without report: thread")
	}
	l.hook(d, &a.Report)
	at := d.Root.KeyAt("report")
	if a.Report.Hook.URL != "" && !slices.ContainsFunc(a.Triggers, func(t Trigger) bool { return t.Provider == "webhook" || t.Native != nil }) {
		d.Warn(at, schema.NoEffect, "name a webhook or an event of a sender in a trigger, or take report out",
			"report has no effect: no delivery starts this automation, and the runs of schedules are not told of")
	}
	if len(a.Report.Kinds) == 0 {
		return
	}
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
		path, center := "", ""
		for _, w := range l.factory.Webhooks {
			if w.Sender() != s {
				continue
			}
			if path = cmp.Or(path, w.Path); w.APISecretName != "" && !dataCenter(w) {
				path, center = "", ""
				break
			}
			if dataCenter(w) {
				center = w.Path
			}
		}
		if path != "" && center != "" {
			d.Warn(at, schema.NoEffect, "take report out, unless it is Jira Cloud: https://NAME.atlassian.net",
				fmt.Sprintf("report has no effect for %s: %s is of Jira Data Center, and only Jira Cloud takes answers", t.Event, center))
			continue
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
