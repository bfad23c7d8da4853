package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"triphammer/cmd/triphammer/client/exit"
	"triphammer/cmd/triphammer/client/term"
	"triphammer/server/api"
	"triphammer/server/terms"
)

// sent is a delivery that was sent, and what came of it.
type sent struct {
	Status     int    `json:"status"`
	DeliveryID string `json:"delivery_id,omitempty"`
	Response   string `json:"response,omitempty"` // if it was not accepted
	// Nothing says why it started no run, and Runs are the runs that it started. Both need --wait.
	Nothing string    `json:"started_nothing,omitempty"`
	Runs    []api.Run `json:"runs,omitempty"`
}

func sentOf(status int, answer []byte) sent {
	s := sent{Status: status}
	if status != http.StatusAccepted || json.Unmarshal(answer, &s) != nil || s.DeliveryID == "" {
		return sent{Status: status, Response: strings.TrimSpace(string(answer))}
	}
	return sent{Status: status, DeliveryID: s.DeliveryID}
}

// report prints what came of deliveries, with --wait after their runs. want is the status that all
// should have.
func (o *sendOptions) report(c *cobra.Command, cl *Client, all []sent, want int) error {
	good := true
	if o.wait {
		var err error
		if good, err = o.await(c, cl, all); err != nil {
			return err
		}
	}
	names := make([]string, len(all))
	for i, s := range all {
		names[i] = s.DeliveryID
		good = good && s.Status == want
	}
	if err := term.Emit(c, all, names, func(out io.Writer) error { return showSent(out, all) }); err != nil || good {
		return err
	}
	return exit.Silently(exit.Bad)
}

// sendPatience is how long send --wait waits unless --timeout is given.
const sendPatience = 2 * time.Hour

// await waits until the runs of deliveries have ended and what is told of them was told, or
// could not be. It tells whether each delivery started a run, and each run has SUCCEEDED.
func (o *sendOptions) await(c *cobra.Command, cl *Client, all []sent) (good bool, err error) {
	timeout := sendPatience
	if c.Flags().Changed("timeout") {
		timeout = o.timeout
	}
	until := time.Now().Add(timeout)
	good = true
	for i := range all {
		s := &all[i]
		if s.DeliveryID == "" {
			continue
		}
		var d api.DeliveryDetail
		err := WaitFor(c.Context(), time.Until(until), "the sender's API has not said yet what "+s.DeliveryID+" lacks", func() (bool, error) {
			d = api.DeliveryDetail{}
			err := cl.Get(c.Context(), "/deliveries/"+url.PathEscape(s.DeliveryID), &d)
			return !d.Waiting, err
		})
		if err != nil {
			return false, err
		}
		for _, id := range d.Runs {
			if _, err := followRun(c, cl, id, time.Until(until), term.NewTranscriptWriter(io.Discard, term.TranscriptView{})); err != nil {
				return false, err
			}
			r, err := AwaitTold(c.Context(), cl, id, time.Until(until))
			if err != nil {
				return false, err
			}
			s.Runs = append(s.Runs, r)
			good = good && r.State == "SUCCEEDED"
		}
		if len(d.Runs) == 0 {
			good = false
			for _, stage := range d.Belt {
				if stage.Outcome == terms.Stopped {
					s.Nothing = stage.Detail
				}
			}
		}
	}
	return good, nil
}

// AwaitTold waits until each answer of a run that has ended was told or was refused once.
func AwaitTold(ctx context.Context, cl *Client, id string, patience time.Duration) (r api.Run, err error) {
	return r, WaitFor(ctx, patience, "what came of "+id+" was not told yet", func() (told bool, err error) {
		r, told, err = Told(ctx, cl, id)
		return told, err
	})
}

// Told gets a run with its answers. told is false if one of them is about to be sent.
func Told(ctx context.Context, cl *Client, id string) (r api.Run, told bool, err error) {
	if err := cl.Get(ctx, "/agent/runs/"+url.PathEscape(id), &r); err != nil || r.Detail == nil {
		return r, true, err
	}
	return r, !slices.ContainsFunc(r.Detail.Answers, func(a api.Answer) bool { return a.Status == "pending" && a.RetryAt == nil }), nil
}

// showSent prints what came of deliveries.
func showSent(w io.Writer, all []sent) error {
	for _, s := range all {
		if s.Nothing != "" {
			fmt.Fprintf(w, "%s started no run: %s\n", s.DeliveryID, s.Nothing)
		}
		for _, r := range s.Runs {
			fmt.Fprintf(w, "\n%s of %s: %s\n", r.RunID, r.Automation, term.Joined(", ", r.State, r.StatusMessage))
			if r.Detail == nil || len(r.Detail.Answers) == 0 {
				fmt.Fprintln(w, "  nobody is told: no report in the definitions takes this event")
			}
			ShowTold(w, r)
		}
	}
	return nil
}

// ShowTold prints what is told of a run and what its agent asked for, or what would be and why it is not.
func ShowTold(w io.Writer, r api.Run) {
	show := func(what, detail, text string) {
		fmt.Fprintf(w, "  %s\n", term.Joined(": ", what, detail))
		if text = strings.TrimSpace(text); text == "" {
			return
		}
		for line := range strings.SplitSeq(text, "\n") {
			fmt.Fprintln(w, strings.TrimRight("  "+term.Gutter+line, " "))
		}
	}
	if r.Detail != nil {
		for _, a := range r.Detail.Answers {
			show(term.Joined(" ", a.Kind, a.Place), a.Detail, a.Text)
		}
	}
	for _, o := range r.Outputs {
		status := o.Status
		if status == "none" {
			status = "not done, because"
		}
		show("the agent asked for "+o.Kind, term.Joined(" ", status, o.URL, o.Detail), o.Text)
	}
}
