package server

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"

	"triphammer/server/access"
	"triphammer/server/api"
	"triphammer/server/run/event"
	"triphammer/server/store"
)

// rawLine is a line of a raw transcript: an event, and whose it is.
type rawLine struct {
	RunID string `json:"run_id"`
	api.Event
}

// conversationTranscript sends the whole transcripts of all runs of a conversation.
func (s *Server) conversationTranscript(ctx context.Context, c *call) (done written, err error) {
	all, err := c.Conversation(ctx, c.Param("id"))
	if err != nil {
		return done, err
	}
	return done, s.sendTranscript(ctx, c, all...)
}

// wantsFile tells whether a client asks for a download, as the published SDK does for
// transcripts.
func (c *call) wantsFile() bool {
	return strings.HasPrefix(c.GetHeader("Accept"), "application/octet-stream")
}

// sendTranscript sends the events of runs as lines of JSON, however many there are. What an
// agent said is in it, so a browser must not show it as a page.
func (s *Server) sendTranscript(ctx context.Context, c *call, all ...access.Run) error {
	page, err := all[0].Events(ctx, 0, maxEvents)
	if err != nil {
		return err
	}
	c.Header("Content-Type", "application/x-ndjson")
	c.Header("X-Content-Type-Options", "nosniff")
	c.Header("Content-Disposition", `attachment; filename="`+all[0].ID.String()+`.jsonl"`)
	c.Status(http.StatusOK)
	lines := json.NewEncoder(c.Writer)
	for i, r := range all {
		for after := int64(0); ; {
			if i > 0 || after > 0 {
				if page, err = r.Events(ctx, after, maxEvents); err != nil {
					break
				}
			}
			for _, e := range page {
				if err = lines.Encode(rawLine{r.ID.String(), api.Event(e)}); err != nil {
					break
				}
				after = e.Seq
			}
			if err != nil || len(page) < maxEvents {
				break
			}
		}
		if err != nil {
			s.cfg.Logger.Warn("a transcript was cut off while it was sent", "run", r.ID, "error", err)
			panic(http.ErrAbortHandler) // a client must not take a part for the whole
		}
	}
	return nil
}

// noRedirect answers, without a key, that a link needs no redirect: this server shares no
// sessions. It looks at nothing, so it tells nobody what there is.
func (s *Server) noRedirect(c *gin.Context) { c.JSON(http.StatusOK, gin.H{}) }

// downloadScreenshot sends a screenshot that a run of a conversation left.
func (s *Server) downloadScreenshot(ctx context.Context, c *call) (done written, err error) {
	all, err := c.Conversation(ctx, c.Param("id"))
	if err != nil {
		return done, err
	}
	a, err := c.Artifact(ctx, c.Param("screenshot"))
	if err != nil {
		return done, err
	}
	if a.Type != event.ArtifactScreenshot || !slices.ContainsFunc(all, func(r access.Run) bool { return r.ID == a.RunID }) {
		return done, api.Refuse(api.NotFound, "the conversation has no screenshot "+a.ID.String())
	}
	return done, sendArtifact(c.Context, a)
}

// acceptFollowUp starts a run that goes on with a conversation, and says when.
func (s *Server) acceptFollowUp(ctx context.Context, c *call, of access.Run) (shown api.FollowedUp, err error) {
	if shown.CreatedRun, err = s.followUp(ctx, c, of); err != nil {
		return shown, err
	}
	made, err := c.Run(ctx, shown.RunID)
	if err != nil {
		return shown, err
	}
	if shown.FollowUpID, shown.Outcome = shown.RunID, "handoff_execution"; made.Behind {
		shown.Outcome = "queue_pending"
	}
	return shown, nil
}

// runByReference finds the run that left a link.
func (s *Server) runByReference(ctx context.Context, c *call) (shown api.FoundRun, err error) {
	url := c.Query("url")
	if url == "" {
		return shown, invalid("url", "is required: the address of a pull request or another link that a run left")
	}
	r, err := c.RunByReference(ctx, url)
	if err != nil {
		return shown, err
	}
	return api.FoundRun{RunID: r.ID.String(), ID: r.ID.String()}, nil
}

// usageHarness are the published names of harnesses whose usage is asked for.
var usageHarness = map[string]string{"claude": "CLAUDE_CODE", "codex": "CODEX"}

// harnessUsage sums up what the harness of a run said it used.
func (s *Server) harnessUsage(ctx context.Context, c *call, r access.Run) (shown api.HarnessUsage, err error) {
	shown = api.HarnessUsage{RunID: r.ID.String(), ID: r.ID.String(), ConversationID: r.ConversationID.String()}
	spec, err := r.Spec(ctx)
	if err != nil {
		return shown, err
	}
	harness := spec.Harness.Type
	u := api.UsageEnvelope{ExecutionID: max(r.Attempt, 1), Harness: cmp.Or(usageHarness[harness], strings.ToUpper(harness), "UNKNOWN"), MetricsVersion: 1}
	u.Snapshot.Coverage = api.UsageCoverage{TokenStatus: "known", ToolStatus: "unavailable"}
	total, byModel := event.Totals{}, make(map[string]*event.Totals)
	var models []string
	for after := int64(0); ; {
		page, err := r.EventPage(ctx, store.EventPage{After: after, Limit: maxEvents, Kinds: []string{event.KindUsage}})
		if err != nil {
			return shown, err
		}
		for _, e := range page {
			after = e.Seq
			decoded, err := event.Decode(e.Kind, e.Data)
			used, ok := decoded.(event.Usage)
			if err != nil || !ok {
				u.Snapshot.Coverage.TokenStatus = "partial"
				continue
			}
			if byModel[used.Model] == nil {
				byModel[used.Model] = &event.Totals{}
				models = append(models, used.Model)
			}
			total.Add(used)
			byModel[used.Model].Add(used)
			u.CapturedAt, u.CaptureSequence, shown.Available = e.At, e.Seq, true
		}
		if len(page) < maxEvents {
			break
		}
	}
	if !shown.Available {
		return shown, nil
	}
	age := max(int64(s.cfg.Now().Sub(u.CapturedAt).Seconds()), 0)
	shown.AgeSeconds, shown.Usage, shown.CostUSD, shown.Turns = &age, &u, total.Usage.CostUSD, total.Usage.Turns
	u.Snapshot.Payload.Usage = tokensOf(harness, total.Usage)
	for _, model := range models {
		u.Snapshot.Payload.Attribution = append(u.Snapshot.Payload.Attribution, api.ModelTokens{Model: model, Usage: tokensOf(harness, byModel[model].Usage)})
	}
	return shown, nil
}

// tokensOf counts tokens in the words of the harness. Zero is not known.
func tokensOf(harness string, u event.Usage) api.TokenUsage {
	known := func(n int64) *int64 {
		if n == 0 {
			return nil
		}
		return &n
	}
	if harness == "claude" {
		return api.TokenUsage{Input: known(u.InputTokens - u.CachedTokens), CacheRead: known(u.CachedTokens), Output: known(u.OutputTokens)}
	}
	return api.TokenUsage{
		Input: known(u.InputTokens), CachedInput: known(u.CachedTokens), Output: known(u.OutputTokens), ReasoningOut: known(u.ReasoningTokens),
		Total: known(u.InputTokens + u.OutputTokens),
	}
}
