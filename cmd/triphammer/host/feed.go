package host

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"triphammer/applier"
	"triphammer/applier/gitrepo"
	"triphammer/cmd/triphammer/client"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/cmd/triphammer/client/tree"
	"triphammer/factory"
	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/inert"
	"triphammer/server/run/event"
	"triphammer/server/store"
	"triphammer/server/terms"
)

// feedTime is how often the feed of dev looks for what is new.
const feedTime = 200 * time.Millisecond

// feed prints what happens on the server of dev: a line for each delivery, for each end of a
// run and for each save.
type feed struct {
	term.Screen
	in     *instance
	cl     *client.Client
	source *gitrepo.WorkTree
	saves  *saves

	last    string // the newest delivery that was shown
	mark    store.Mark
	ended   map[string]bool // the runs whose end was shown
	untold  []api.Run       // those of them whose answers are about to be sent
	updated time.Time       // up to which ended has them
	column  int             // width of the column with the names
}

func newFeed(out io.Writer, in *instance, cl *client.Client, source *gitrepo.WorkTree, saves *saves) *feed {
	return &feed{Screen: term.ScreenOf(out), in: in, cl: cl, source: source, saves: saves, ended: make(map[string]bool), updated: Now(), column: 8}
}

// begin sets the feed to now: what was before is not shown.
func (f *feed) begin(ctx context.Context) error {
	shown, err := client.Collect[api.Delivery](ctx, f.cl, "/deliveries", url.Values{}, 1)
	if err != nil {
		return err
	}
	if len(shown) > 0 {
		f.last = shown[0].ID
	}
	f.saves.take()
	_, err = f.newEnds(ctx)
	return err
}

// follow shows what happens until ctx is done.
func (f *feed) follow(ctx context.Context) error {
	ticker := time.NewTicker(feedTime)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := f.look(last); err != nil {
				return err
			}
			for _, r := range f.untold {
				f.tell(last, r, untoldHead(r), true)
			}
			return nil
		case <-ticker.C:
		}
		if err := f.look(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// look shows what is new.
func (f *feed) look(ctx context.Context) error {
	saved := f.saves.take()
	for i, a := range saved {
		if err := f.saved(ctx, a, i == len(saved)-1); err != nil {
			return err
		}
	}
	mark, err := f.in.store.Mark(ctx)
	if err != nil || mark == f.mark {
		return err
	}
	newer, err := client.NewerThan(ctx, f.cl, url.Values{}, f.last)
	if err != nil {
		return err
	}
	for _, d := range newer {
		var detail api.DeliveryDetail
		if err := f.cl.Get(ctx, "/deliveries/"+d.ID, &detail); err != nil {
			return err
		}
		f.delivery(detail)
		f.last = d.ID
	}
	ends, err := f.newEnds(ctx)
	if err != nil {
		return err
	}
	var later []api.Run
	for _, r := range f.untold {
		if !f.tell(ctx, r, untoldHead(r), false) {
			later = append(later, r)
		}
	}
	for _, r := range ends {
		f.end(ctx, r)
		if !f.tell(ctx, r, "", false) {
			later = append(later, r)
		}
	}
	f.mark, f.untold = mark, later
	return nil
}

func untoldHead(r api.Run) string { return fmt.Sprintf("of %s (%s):", r.RunID, r.Automation) }

// tell shows below a head what is told of a run that has ended. It returns false, and shows nothing
// without asItStands, if an answer is about to be sent.
func (f *feed) tell(ctx context.Context, r api.Run, head string, asItStands bool) bool {
	r, told, err := client.Told(ctx, f.cl, r.RunID)
	if err != nil || !told && !asItStands {
		return err != nil // it is not kept any more
	}
	var b strings.Builder
	if client.ShowTold(&b, r); b.Len() > 0 && head != "" {
		f.say(head)
	}
	for line := range strings.Lines(b.String()) {
		f.print("        " + inert.Text(line))
	}
	return true
}

// newEnds are the runs that have ended since it was called last, the oldest first.
func (f *feed) newEnds(ctx context.Context) ([]api.Run, error) {
	const slack = 2 * time.Second // transactions end in another order than their times
	query := url.Values{"sort_by": {"updated_at"}, "state": {"SUCCEEDED", "FAILED", "CANCELLED"}, "updated_after": {f.updated.Add(-slack).Format(time.RFC3339Nano)}}
	all, err := client.Collect[api.Run](ctx, f.cl, "/agent/runs", query, 0)
	if err != nil {
		return nil, err
	}
	var ends []api.Run
	for _, r := range slices.Backward(all) {
		if r.UpdatedAt.After(f.updated) {
			f.updated = r.UpdatedAt
		}
		if !f.ended[r.RunID] {
			f.ended[r.RunID] = true
			ends = append(ends, r)
		}
	}
	return ends, nil
}

func (f *feed) delivery(d api.DeliveryDetail) {
	var belt strings.Builder
	for _, s := range d.Belt {
		belt.WriteString(f.Paint(map[string]string{terms.Passed: term.ColourGood, terms.Stopped: term.ColourBad}[s.Outcome], terms.Mark(s.Outcome)))
	}
	f.line(d.ReceivedAt, d.ID, d.Webhook, belt.String(), whyOf(d))
}

// whyOf says in one line what became of a delivery, as its belt does.
func whyOf(d api.DeliveryDetail) string {
	text := ""
	for _, s := range d.Belt {
		if s.Detail != "" {
			text = s.Detail
		}
		if s.Outcome == terms.Stopped {
			text = s.Stage + ": " + s.Detail
			if d.DuplicateOf != "" {
				text = "repeats " + d.DuplicateOf // without the identity, which may be a long hash
			}
			break
		}
	}
	if near := api.Nearest(d.Matches); d.RunsStarted != nil && *d.RunsStarted == 0 && near != nil && !near.Matched {
		text += fmt.Sprintf("; %s: %s: wanted %s, came %s", near.Automation, near.Path, near.Want, near.Got)
	}
	if d.ReplayOf != "" {
		text = "replays " + d.ReplayOf + ": " + text
	}
	return d.Label + ": " + text
}

func (f *feed) end(ctx context.Context, r api.Run) {
	mark, colour := "✗", term.ColourBad
	if r.State == "SUCCEEDED" {
		mark, colour = "✓", term.ColourGood
	}
	text := r.State
	if r.StartedAt != nil && r.FinishedAt != nil {
		text += " in " + event.Took(r.FinishedAt.Sub(*r.StartedAt).Milliseconds())
	}
	if r.Usage != nil && r.Usage.InferenceCostUSD > 0 {
		text += ", " + event.USD(r.Usage.InferenceCostUSD)
	}
	said := r.StatusMessage
	if said == "" {
		said = f.lastWords(ctx, r.RunID)
	}
	said, _, _ = strings.Cut(strings.TrimSpace(said), "\n")
	at := r.UpdatedAt
	if r.FinishedAt != nil {
		at = *r.FinishedAt
	}
	f.line(at, r.RunID, r.Automation, f.Paint(colour, mark)+"     ", term.Joined(": ", text, said))
}

// lastWords is what the agent of a run said last. It is empty if it said nothing.
func (f *feed) lastWords(ctx context.Context, id string) (said string) {
	var t api.Transcript
	query := url.Values{"newest": {"true"}, "kind": {event.Message{}.Kind(), event.Output{}.Kind()}, "limit": {"20"}}
	if f.cl.Get(ctx, "/agent/runs/"+id+"/transcript?"+query.Encode(), &t) != nil {
		return ""
	}
	for _, e := range t.Events {
		switch d, _ := event.Decode(e.Kind, e.Data); d := d.(type) {
		case event.Message:
			said = d.Text
		case event.Output:
			if text := strings.TrimSpace(d.Text); text != "" {
				said = text[strings.LastIndexByte(text, '\n')+1:]
			}
		}
	}
	return said
}

// saves are the applies that the feed has yet to show: there can be several between two looks.
type saves struct {
	mu   sync.Mutex
	last *applier.Apply
	all  []*applier.Apply
}

func (s *saves) add(state applier.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if a := state.LastApply; a != nil && a != s.last {
		s.last, s.all = a, append(s.all, a)
	}
}

func (s *saves) take() (all []*applier.Apply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all, s.all = s.all, nil
	return all
}

// saved shows what became of a save. Of an earlier one than the newest, the files have changed
// since.
func (f *feed) saved(ctx context.Context, a *applier.Apply, newest bool) error {
	var source func(string) []byte
	if newest {
		if made, err := f.makeSecrets(ctx, a); err != nil || made {
			return err // an apply with them follows
		}
		source = tree.Folder{FS: f.source.FS()}.Source
	}
	mark, text := f.Paint(term.ColourGood, "✓")+"     ", "applied: "+changesOf(a.Plan)
	switch a.Outcome {
	case applier.Refused:
		errors, _ := a.Diagnostics.Counts()
		mark, text = f.Paint(term.ColourBad, "✗")+"     ", "not applied: "+terms.Counted(errors, "error")+"; what was applied last keeps serving"
	case applier.Failed:
		mark, text = f.Paint(term.ColourBad, "✗")+"     ", "not applied: "+a.Error
	}
	f.line(a.FinishedAt, "saved", "", mark, text)
	if len(a.Diagnostics) == 0 {
		return nil
	}
	var b strings.Builder
	report := &schema.Report{Diagnostics: a.Diagnostics}
	if err := schema.Print(&b, "text", report, schema.PrintOptions{Source: source}); err != nil {
		return err
	}
	for line := range strings.Lines(strings.TrimSuffix(b.String(), schema.Summary(report)+"\n")) {
		f.print("          " + inert.Text(strings.TrimRight(line, "\n")) + "\n")
	}
	return nil
}

// makeSecrets makes up what new webhooks lack.
func (f *feed) makeSecrets(ctx context.Context, a *applier.Apply) (made bool, err error) {
	if !slices.ContainsFunc(a.Diagnostics, func(d schema.Diagnostic) bool { return d.Code == schema.MissingSecret && d.Severity == schema.Error }) {
		return false, nil
	}
	def, report, err := factory.Load(ctx, f.source.FS(), factory.Options{})
	if err != nil || report.Diagnostics.HasErrors() {
		return false, nil // the findings tell it
	}
	secrets, err := ensureSecrets(ctx, f.cl, def, f.in.dir)
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		f.say("made up the secret " + name)
	}
	return len(secrets) > 0, err
}

// changesOf names the changes of a plan.
func changesOf(p applier.Plan) string {
	var parts []string
	for _, group := range client.PlanGroups(&p) {
		for _, change := range group.Changes {
			parts = append(parts, fmt.Sprintf("%s %s %s", group.Sign, change.Kind, change.Name))
		}
	}
	if len(parts) == 0 {
		return "nothing that serves is changed"
	}
	return strings.Join(parts, ", ")
}

// line prints a line. The mark may be painted and takes six columns.
func (f *feed) line(at time.Time, id, name, mark, text string) {
	name, text = term.OneLine.Replace(inert.Text(name)), term.OneLine.Replace(inert.Text(text))
	f.column = max(f.column, min(len(name), 24))
	head := fmt.Sprintf("%s  %-17s  %s  ", f.Paint(term.ColourDim, at.Local().Format(time.TimeOnly)), id, name+strings.Repeat(" ", max(0, f.column-len(name))))
	const before = 8 + 2 + 17 + 2 + 2 + 6 + 2
	if used := before + f.column; f.Width == 0 || used+len(text) <= f.Width {
		f.print(head + mark + "  " + text + "\n")
		return
	}
	f.print(head + mark + "\n" + f.wrapped(text))
}

// say prints a line of its own.
func (f *feed) say(text string) { f.print(f.wrapped(term.OneLine.Replace(inert.Text(text)))) }

// wrapped is text below a line, broken between words if the terminal is narrower.
func (f *feed) wrapped(text string) string {
	const indent = "          "
	if f.Width == 0 {
		return indent + text + "\n"
	}
	var b strings.Builder
	col := 0
	for _, word := range strings.Fields(text) {
		columns := 0
		for _, r := range word {
			columns += term.ColumnsOf(r)
		}
		switch {
		case b.Len() == 0:
			b.WriteString(indent)
			col = len(indent)
		case col+1+columns > f.Width:
			b.WriteString("\n" + indent)
			col = len(indent)
		default:
			b.WriteString(" ")
			col++
		}
		b.WriteString(word)
		col += columns
	}
	return b.String() + "\n"
}

func (f *feed) print(text string) {
	_, _ = io.WriteString(f.W, text) // a terminal that is gone ends dev by a signal
}
