package dashboard

import (
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"triphammer/factory/native"
	"triphammer/server/api"
	"triphammer/server/dashboard/markdown"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// RunPage is one run with its transcript.
type RunPage struct {
	Page
	Run      api.Run
	Now      time.Time
	Delivery *api.DeliveryDetail // the delivery that started the run; nil: there is none, or it was deleted
	Line     line
	Place    event.Status // worker and isolation of the last attempt
	Files    []entry      // files that the last attempt changed
	More     int          // number of files that are not shown
	Changed  int          // number of shown files that Git does not ignore
	Used     event.Usage
	Answer   *entry // the last message of the agent of an ended run; nil: there is none
	clock    []moment

	View    string // of the transcript
	Entries []entry
	First   int64 // the first event of the page, if there are earlier ones
	Last    int64 // the last event of the page
	Later   bool  // there are later events
	After   int64 // the event after which the page begins
	Part    bool  // the page asks for a part of itself
	Was     string

	Message, Problem string // of a refused follow-up
}

var onePage = parse("run")

func init() {
	functions["prose"], functions["sentence"] = markdown.Prose, sentence
	functions["meter"], functions["bare"] = meter, markdown.Bare
	functions["now"], functions["cameFrom"] = func() time.Time { return Now() }, cameFrom
	functions["stamp"] = func(at any) string { return timeIn(at).Format(time.RFC3339) }
	functions["sources"] = runSources
	functions["source"], functions["tone"], functions["waiting"] = sourceName, func(state string) string { return strings.Replace(runState(state).Kind, "stop", "", 1) }, waiting
	functions["clip"] = func(text string) string { return event.Line(text, 240) }
	functions["float"] = func(n int64) float64 { return float64(n) }
}

func runSources() []string {
	all := []string{store.SourceWebhook}
	for _, s := range native.Senders() {
		all = append(all, s.Source)
	}
	return append(all, store.SourceSchedule, store.SourceAPI)
}

func sourceName(source string) string {
	for _, s := range native.Senders() {
		if s.Source == source {
			return s.Title
		}
	}
	return map[string]string{store.SourceWebhook: "Webhook", store.SourceSchedule: "Schedule", store.SourceAPI: "Person or program"}[source]
}

// sentence is a text with a capital letter and a full stop.
func sentence(text string) string {
	text = strings.TrimSpace(text)
	if first, size := utf8.DecodeRuneInString(text); size > 0 {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if text != "" && !strings.ContainsAny(text[len(text)-1:], ".!?") {
		text += "."
	}
	return text
}

func (RunPage) template() *template.Template { return onePage() }

// Status implements Status.
func (r RunPage) Status() int {
	if r.Problem != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// view is a view of a transcript: some kinds of events.
type view struct {
	Name, Key string
	Kinds     []string
}

var views = []view{
	{"All", "", nil},
	{"Messages", "messages", []string{event.KindMessage}},
	{"Commands", "commands", []string{event.KindCommand, event.KindTool, event.KindPermission}},
	{"Files", "files", []string{event.KindFile, event.KindArtifact}},
	{"Network", "network", []string{event.KindEgress, event.KindPush}},
}

// Views are the views of the transcript.
func (r RunPage) Views() []view { return views }

// Count is how many events a view has.
func (r RunPage) Count(v view) (n int64) {
	for kind, count := range r.Run.Detail.Events {
		if len(v.Kinds) == 0 || slices.Contains(v.Kinds, kind) {
			n += count
		}
	}
	return n
}

func (r RunPage) count(kinds ...string) int64 { return r.Count(view{Kinds: kinds}) }

// headingOf is what a run is for: its title, and what it is about, such as "Fix: login fails on Safari · acme/app#12".
func headingOf(r api.Run) string {
	told := ""
	if r.About != nil {
		told = r.About.Title
	}
	_, subject, _ := strings.Cut(r.Subject, ":")
	about := strings.Trim(event.Line(told, 120)+" · "+subject, " ·")
	if about == "" {
		return r.Title
	}
	if told == "" {
		return r.Title + " · " + about
	}
	return r.Title + ": " + about
}

// Answered is what was told where the event came from; empty: nothing was.
func (r RunPage) Answered() string {
	for _, s := range r.Run.Belt {
		if s.Stage == "answered" {
			return s.Detail
		}
	}
	return ""
}

// Steps are the parts of the transcript. If the whole transcript of an ended run is shown, the entries
// between two messages of the agent are folded.
func (r RunPage) Steps() []step { return steps(r.Entries, !r.Goes() && !r.Part && r.View == "") }

// Takes tells whether a request such as "retry" can be made of the run now.
func (r RunPage) Takes(what string) bool { return slices.Contains(r.Run.Detail.Takes, what) }

// Retries tells whether the person can retry the run, and nobody has done so yet.
func (r RunPage) Retries() bool {
	return r.May("runs") && r.Takes("retry") && len(r.Run.Detail.RetriedBy) == 0
}

// Goes tells whether the run goes on.
func (r RunPage) Goes() bool { return !store.RunState(r.Run.State).Terminal() }

// Links are the artifacts that are links. The agent chose their addresses.
func (r RunPage) Links() []api.Artifact { return artifacts(r.Run, true) }

// Kept are the artifacts that can be downloaded.
func (r RunPage) Kept() []api.Artifact { return artifacts(r.Run, false) }

func artifacts(r api.Run, links bool) (some []api.Artifact) {
	for _, a := range r.Artifacts {
		if (a.Data.URL != "") == links {
			some = append(some, a)
		}
	}
	return some
}

// At is the address of a part of the page.
func (r RunPage) At(parameters ...string) string {
	return r.To("/runs/"+url.PathEscape(r.Run.RunID), append([]string{"view", r.View}, parameters...)...)
}

// Raw are the parts in which the transcript can be downloaded. Each number is the event after which
// a part begins.
func (r RunPage) Raw() (after []int64) {
	for n := int64(0); n == 0 || n < r.Count(view{}); n += rawEvents {
		after = append(after, n)
	}
	return after
}

// rawEvents is how many events of a transcript one answer of the API has.
const rawEvents = 10_000

// Stations are the cells of the large belt: of the delivery that started the run, or else of the
// run.
func (r RunPage) Stations() []station {
	state := runState(r.Run.State)
	say := map[string]string{"run": "At work", "wait": "Waits"}[state.Kind]
	if r.Delivery == nil {
		return stations(r.Run.Belt, state.Kind, say)
	}
	all := slices.Clone(r.Delivery.Belt)
	for i := range all {
		if i == len(all)-1 {
			all[i].Outcome, all[i].Detail = "active", r.Waits()
			if r.Run.StartedAt != nil {
				all[i].Detail = tookOf(r.Run.StartedAt, r.Now)
			}
		}
	}
	return stations(all, state.Kind, say)
}

// Undecided are the outputs that wait for a person.
func (r RunPage) Undecided() (all []api.Output) {
	for _, o := range r.Run.Outputs {
		if o.Status == store.OutputWaiting && o.Approval != nil {
			all = append(all, o)
		}
	}
	return all
}

// GivenUp tells whether an answer or an output was given up, which a person can have sent again.
func (r RunPage) GivenUp() bool {
	return slices.ContainsFunc(r.Run.Outputs, func(o api.Output) bool { return o.Status == store.OutputFailed }) ||
		slices.ContainsFunc(r.Run.Belt, func(s api.Stage) bool { return s.Stage == "answered" && s.Outcome == terms.Stopped })
}

// Waits says why the run waits.
func (r RunPage) Waits() string {
	if r.Run.State != string(store.Queued) && r.Run.State != string(store.Blocked) || len(r.Run.Belt) == 0 {
		return ""
	}
	_, why, _ := strings.Cut(r.Run.Belt[0].Detail, " UTC: ")
	return why
}

// Limits says after what time the run is stopped.
func (r RunPage) Limits() string {
	var parts []string
	if s := r.Run.Detail.TimeoutSec; s > 0 {
		parts = append(parts, "after "+roughly(s))
	}
	if s := r.Run.Detail.IdleSec; s > 0 {
		parts = append(parts, "after "+roughly(s)+" of silence")
	}
	return strings.Join(parts, ", or ")
}

// roughly is a configured time, such as 30 min.
func roughly(seconds int64) string {
	switch {
	case seconds%3600 == 0:
		return fmt.Sprintf("%d h", seconds/3600)
	case seconds%60 == 0:
		return fmt.Sprintf("%d min", seconds/60)
	}
	return event.Took(seconds * 1000)
}

// From is the event after which an open page goes on by itself. A page that shows a past part of
// the transcript does not go on.
func (r RunPage) From() string {
	if r.Later && !r.Part {
		return strconv.FormatInt(1<<53-1, 10)
	}
	return strconv.FormatInt(r.Last, 10)
}

// Sent is the prompt, as far as a page has room for it.
func (r RunPage) Sent() string {
	text, _ := clip(r.Run.Detail.Sent, mostPrompt)
	return text
}

// Others are the other runs of the conversation.
func (r RunPage) Others() []api.RunRef {
	if len(r.Run.Detail.Conversation) < 2 {
		return nil
	}
	return r.Run.Detail.Conversation
}

// Command is the command that shows the run on the command line.
func (r RunPage) Command() string {
	if r.Goes() {
		return "triphammer runs watch " + r.Run.RunID
	}
	return "triphammer runs show " + r.Run.RunID
}

func runOf(v *Visit, more ...string) string {
	return strings.Join(append([]string{"/agent/runs/" + url.PathEscape(v.Param("id"))}, more...), "/")
}

func events(v *Visit, query url.Values) ([]api.Event, bool, error) {
	var t api.Transcript
	err := v.Get(runOf(v, "transcript")+"?"+query.Encode(), &t)
	return t.Events, t.PageInfo.HasNextPage, err
}

const (
	mostPrompt = 10_000 // bytes
	mostAnswer = 3_000
	mostFiles  = 40
	fileRoom   = 16_000 // bytes of the diffs at the top of the page, about
)

func runPage(v *Visit) (page RunPage, err error) {
	if err = v.Get(runOf(v), &page.Run); err != nil {
		return page, err
	}
	r := &page.Run
	if page.Page, err = v.Page(""); err != nil {
		return page, err
	}
	page.Now, page.Part, page.Was, page.View = Now(), v.Header.Get("HX-Request") != "", v.Query("was"), v.Query("view")
	if !slices.ContainsFunc(views, func(w view) bool { return w.Key == page.View }) {
		page.View = ""
	}
	if r.DeliveryID != "" {
		d := &api.DeliveryDetail{}
		switch err := v.Get("/deliveries/"+url.PathEscape(r.DeliveryID), d); {
		case err == nil:
			page.Delivery = d
		case !isStatus(err, http.StatusNotFound):
			return page, err
		}
	}
	page.Title = headingOf(*r)
	page.clock = []moment{{0, r.CreatedAt}}
	marks, _, err := events(v, url.Values{"kind": {event.KindStatus, event.KindPhase, event.KindStarted}, "newest": {"true"}, "limit": {"200"}})
	if err != nil {
		return page, err
	}
	page.Line = lineOf(r, marks, page.Now)
	begin, at := int64(0), false // where the last attempt begins, and whether its agent is at work
	for _, e := range marks {
		if e.Kind == event.KindStarted {
			page.clock, at = append(page.clock, moment{e.Seq, e.At}), true
		}
		if decoded, err := event.Decode(e.Kind, e.Data); err == nil {
			switch s, _ := decoded.(event.Status); s.State {
			case string(store.Queued):
				begin, at = e.Seq, false
			case string(store.InProgress):
				if page.Place = s; !at {
					page.clock = append(page.clock, moment{e.Seq, e.At})
				}
			}
		}
	}
	if !page.Goes() && page.count(event.KindMessage) > 0 {
		if err := page.answer(v, begin); err != nil {
			return page, err
		}
	}
	if err := page.use(v); err != nil {
		return page, err
	}
	if page.count(event.KindFile) > 0 {
		if err := page.changed(v, begin); err != nil {
			return page, err
		}
	}
	return page, page.read(v)
}

func isStatus(err error, status int) bool {
	refused := (*Refused)(nil)
	return errors.As(err, &refused) && refused.Status == status
}

// use adds up the usage that the harness reported, unless there are too many reports.
func (r *RunPage) use(v *Visit) error {
	if r.count(event.KindUsage) == 0 {
		return nil
	}
	used, more, err := events(v, url.Values{"kind": {event.KindUsage}, "limit": {"1000"}})
	if err != nil || more {
		return err
	}
	var totals event.Totals
	for _, e := range used {
		if decoded, err := event.Decode(e.Kind, e.Data); err == nil {
			totals.Add(decoded)
		}
	}
	r.Used = totals.Usage
	return nil
}

// answer reads the last message of the agent. begin is the event after which the last attempt
// begins.
func (r *RunPage) answer(v *Visit, begin int64) error {
	said, _, err := events(v, url.Values{"kind": {event.KindMessage}, "newest": {"true"}, "limit": {"20"}})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(said) {
		if _, _, one := (reading{}).one(e); e.Seq > begin && one.Spoken() && strings.TrimSpace(one.Say) != "" {
			one.Say, one.Cut = clip(one.Say, mostAnswer)
			r.Answer = &one
			break
		}
	}
	return nil
}

// changed reads the files that the last attempt changed. begin is the event after which it begins.
func (r *RunPage) changed(v *Visit, begin int64) error {
	found, _, err := events(v, url.Values{"kind": {event.KindFile}, "after": {strconv.FormatInt(begin, 10)}, "limit": {strconv.Itoa(mostFiles + 1)}})
	if err != nil {
		return err
	}
	if len(found) > mostFiles {
		found = found[:mostFiles]
		r.More = int(r.count(event.KindFile)) - mostFiles
	}
	room := fileRoom
	for _, e := range found {
		decoded, err := event.Decode(e.Kind, e.Data)
		f, ok := decoded.(event.File)
		if err != nil || !ok {
			continue
		}
		counted := event.Totals{}
		counted.Add(f)
		r.Changed += counted.Files
		one := entry{Seq: e.Seq, Kind: e.Kind}
		one.file(f, room)
		for _, l := range one.Diff {
			room -= markdown.Weight(l.Text) + 30
		}
		r.Files = append(r.Files, one)
	}
	return nil
}

// read reads the part of the transcript that the address asks for. Without an address of a part,
// it reads the newest part of a run that goes on, and the first part of another run.
func (r *RunPage) read(v *Visit) error {
	number := func(name string) (n int64) {
		n, err := strconv.ParseInt(v.Query(name), 10, 64)
		if err != nil {
			return 0
		}
		return max(n, 0)
	}
	after, before, whole := number("after"), number("before"), number("whole")
	if whole > 0 {
		after = whole - 1
	}
	r.After = after
	newest := before > 0 || v.Query("newest") != "" || r.Goes() && !v.URL.Query().Has("after") && whole == 0
	query := url.Values{"limit": {strconv.Itoa(mostEvents + 1)}}
	for _, w := range views {
		if w.Key == r.View && len(w.Kinds) > 0 {
			query["kind"] = w.Kinds
		}
	}
	p := reading{clock: r.clock, over: !r.Goes(), whole: whole}
	if r.Run.State == string(store.FailedRun) {
		p.reason = r.Run.StatusMessage
	}
	switch {
	case newest:
		query.Set("newest", "true")
		query.Set("before", strconv.FormatInt(before, 10))
	case after > 0:
		query.Set("after", strconv.FormatInt(after, 10))
		if err := r.earlier(v, &p); err != nil {
			return err
		}
	}
	found, more, err := events(v, query)
	if err != nil {
		return err
	}
	n := min(fit(found, whole, newest), mostEvents)
	if more = more || n < len(found); newest {
		found = found[len(found)-n:]
	} else {
		found = found[:n]
	}
	r.Last = after
	if len(found) > 0 {
		r.Last = found[len(found)-1].Seq
		if newest && more || !newest && after > 0 {
			r.First = found[0].Seq
		}
	}
	r.Later = !newest && more || before > 0
	r.Entries = p.entries(found)
	return nil
}

// earlier reads the events before the part that the part continues.
func (r *RunPage) earlier(v *Visit, p *reading) error {
	limit := url.Values{"newest": {"true"}, "before": {strconv.FormatInt(r.After+1, 10)}, "limit": {"1"}}
	last, _, err := events(v, limit)
	if err != nil || len(last) == 0 {
		return err
	}
	p.before = &last[0]
	if r.count(event.KindCommand, event.KindTool) == 0 || !r.Part {
		return nil
	}
	limit["kind"] = []string{event.KindCommand, event.KindTool}
	limit.Set("limit", "100")
	p.started, _, err = events(v, limit)
	return err
}

func cancelRun(v *Visit) (SeeOther, error) {
	err := v.Send("POST", runOf(v, "cancel"), nil, nil)
	return SeeOther{To: "/runs/" + url.PathEscape(v.Param("id")), Said: "The run is being cancelled."}, err
}

func interruptRun(v *Visit) (SeeOther, error) {
	err := v.Send("POST", runOf(v, "interrupt"), nil, nil)
	return SeeOther{To: "/runs/" + url.PathEscape(v.Param("id")), Said: "The turn is being interrupted. A follow-up goes on from there."}, err
}

func answerRun(v *Visit) (SeeOther, error) {
	err := v.Send("POST", runOf(v, "answer"), nil, nil)
	return SeeOther{To: "/runs/" + url.PathEscape(v.Param("id")), Said: "What was given up is sent again."}, err
}

func retryRun(v *Visit) (SeeOther, error) {
	var made api.CreatedRun
	err := v.Send("POST", runOf(v, "retry"), api.RetryRun{Resume: v.Form.Get("resume") == "true"}, &made)
	return SeeOther{To: "/runs/" + made.RunID, Said: "It runs again: this is the new run."}, err
}

// followRun starts a follow-up. If the follow-up is refused, the page shows the run with the
// message again.
func followRun(v *Visit) (Content, error) {
	var made api.CreatedRun
	message := v.Form.Get("message")
	err := v.Send("POST", runOf(v, "followups"), api.FollowUp{Message: message}, &made)
	refused := (*Refused)(nil)
	if err == nil || !errors.As(err, &refused) || refused.Status < 400 || refused.Status == http.StatusNotFound || refused.Status == http.StatusForbidden {
		return SeeOther{To: "/runs/" + made.RunID, Said: "The conversation goes on with this run."}, err
	}
	page, err := runPage(v)
	page.Message, page.Problem = message, refused.Message
	return page, err
}

// rawTranscript answers with the events in the JSON of the API.
func rawTranscript(v *Visit) (Download, error) {
	return Download{runOf(v, "transcript") + "?" + url.Values{"after": {v.Query("after")}}.Encode()}, nil
}

// payloadOf answers with the payload that the run got.
func payloadOf(v *Visit) (Download, error) {
	var r api.Run
	err := v.Get(runOf(v), &r)
	return Download{"/deliveries/" + url.PathEscape(r.DeliveryID) + "/payload"}, err
}

func artifact(v *Visit) (Download, error) {
	return Download{"/agent/artifacts/" + url.PathEscape(v.Param("id")) + "/download"}, nil
}
