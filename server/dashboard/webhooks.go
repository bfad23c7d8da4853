package dashboard

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"triphammer/server/api"
)

var webhookRoutes = []Route{
	get("/webhooks", webhooksPage),
	get("/webhooks/:name", webhookPage),
}

func init() { functions["proofWords"] = proofWords }

// WebhookList is the list of webhooks.
type WebhookList struct {
	Page
	Webhooks []WebhookRow // live webhooks first
	Turn     Turn
	All      int
	states   map[string]int
}

// WebhookRow is a webhook of the list.
type WebhookRow struct {
	api.Webhook
	State   state
	Listens []api.Automation
	Last    *api.Delivery
	Day     api.WebhookStats
}

var webhookList = parse("webhooks")

func (WebhookList) template() *template.Template { return webhookList() }

// Count tells how many webhooks are in a state.
func (p WebhookList) Count(word string) int { return p.states[word] }

// proofWords is how the sender of a webhook proves itself, in short.
func proofWords(w api.Webhook) string {
	switch {
	case w.SignatureScheme != "":
		return "signature, " + w.SignatureScheme
	case w.AuthMode == "url_token":
		return "secret in the URL"
	}
	return "bearer token"
}

func webhookState(w *api.Webhook) state {
	switch {
	case !w.Enabled:
		return state{"stop", "Disabled"}
	case w.Paused != nil:
		return state{"warn", "Paused"}
	}
	return state{"ok", "Enabled"}
}

func webhooksPage(v *Visit) (page WebhookList, err error) {
	if page.Page, err = v.Page("Webhooks"); err != nil {
		return page, err
	}
	ofFactory := url.Values{"factory": {page.Factory}}
	list, err := all[api.Webhook](v, "/webhooks", ofFactory, maxListed)
	if err != nil {
		return page, err
	}
	automations, err := all[api.Automation](v, "/automations", ofFactory, maxListed)
	if err != nil {
		return page, err
	}
	stats, err := v.stats(page.Factory, "")
	if err != nil {
		return page, err
	}
	page.All, page.states = len(list), make(map[string]int)
	for i := range list {
		page.states[webhookState(&list[i]).Word]++
	}
	rank := map[string]int{"Enabled": 0, "Paused": 1, "Disabled": 2}
	slices.SortStableFunc(list, func(a, b api.Webhook) int {
		return cmp.Or(cmp.Compare(rank[webhookState(&a).Word], rank[webhookState(&b).Word]), strings.Compare(a.Factory, b.Factory), strings.Compare(a.Name, b.Name))
	})
	list, page.Turn = turn(v, list, func(w api.Webhook) []string { return []string{w.Name, proofWords(w), webhookState(&w).Word} })
	for i := range list {
		w := &list[i]
		row := WebhookRow{Webhook: *w, State: webhookState(w), Listens: listening(w, automations), Day: statsOf(stats, w)}
		newest, err := v.deliveriesTo(w, 1)
		if err != nil {
			return page, err
		}
		if len(newest) > 0 {
			row.Last = &newest[0]
		}
		page.Webhooks = append(page.Webhooks, row)
	}
	return page, nil
}

func statsOf(s api.Stats, w *api.Webhook) api.WebhookStats {
	for _, one := range s.Webhooks {
		if one.UID == w.UID && one.Factory == w.Factory {
			return one
		}
	}
	return api.WebhookStats{}
}

// maxListed is how many definitions of one kind a page lists.
const maxListed = 5000

// listening are the automations with a trigger that selects the webhook.
func listening(w *api.Webhook, automations []api.Automation) (found []api.Automation) {
	for _, a := range automations {
		if a.Factory == w.Factory && slices.ContainsFunc(a.Triggers, func(t api.Trigger) bool {
			return slices.Contains(t.Webhooks, w.Name) || slices.Contains(t.WebhookIDs, w.UID)
		}) {
			found = append(found, a)
		}
	}
	return found
}

// deliveriesTo are the newest deliveries to a webhook.
func (v *Visit) deliveriesTo(w *api.Webhook, n int) ([]api.Delivery, error) {
	var list api.List[api.Delivery]
	err := v.Get("/deliveries?"+url.Values{"webhook": {w.UID}, "factory": {w.Factory}, "limit": {strconv.Itoa(n)}, "about": {"true"}}.Encode(), &list)
	return list.Entries, err
}

// Webhook is the page of a webhook.
type Webhook struct {
	Page
	Webhook  api.Webhook
	State    state
	Setup    api.WebhookSetup
	Scheme   *api.SignatureScheme // nil if the webhook verifies no signatures
	Secret   *api.Secret          // nil if the person may not see it
	Waiting  []api.PendingSecret  // secrets that the sender gave and nobody has confirmed
	Listens  []api.Automation
	Rows     []api.Delivery   // the newest deliveries
	First    bool             // the page was opened before the first delivery, and shows deliveries as they come
	Day      api.WebhookStats // figures of the last 24 hours
	Since    time.Time        // beginning of these 24 hours
	Counting bool             // not all deliveries are counted yet
	File     Place
	Test     webhookTest
}

var webhookTemplate = parse("webhook")

func (Webhook) template() *template.Template { return webhookTemplate() }

// Used are the other uses of the secret.
func (p Webhook) Used() (others []api.SecretUse) {
	if p.Secret == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Secret.UsedBy), func(u api.SecretUse) bool {
		return u.Kind == "webhook" && u.Factory == p.Webhook.Factory && u.Name == p.Webhook.Name
	})
}

// Yours tells that the sender takes a secret of your choice.
func (p Webhook) Yours() bool { return p.Scheme == nil || p.Scheme.SecretIsYours }

// Came are the sums of the day's figures.
func (p Webhook) Came() (came struct{ Accepted, Duplicates, Refused int64 }) {
	for i, n := range p.Day.Times {
		came.Duplicates += p.Day.Duplicates[i]
		came.Refused += p.Day.Refused[i]
		came.Accepted += n - p.Day.Duplicates[i] - p.Day.Refused[i]
	}
	return came
}

// After is the newest delivery that the page shows.
func (p Webhook) After() string {
	if len(p.Rows) == 0 {
		return ""
	}
	return p.Rows[0].ID
}

func webhookPage(v *Visit) (page Webhook, err error) {
	if page, err = v.webhook(v.Query("factory"), unreserved(v.Param("name"))); err != nil {
		return page, err
	}
	page.Test.choose(page.Setup.Samples, v.Query("sample"))
	return page, nil
}

func (v *Visit) webhook(factory, name string) (page Webhook, err error) {
	if page.Page, err = v.Page("Webhook " + name); err != nil {
		return page, err
	}
	query := "?" + url.Values{"factory": {factory}}.Encode()
	path := "/webhooks/" + url.PathEscape(name)
	if err = v.Get(path+query, &page.Webhook); err != nil {
		return page, err
	}
	w := &page.Webhook
	page.Title = "Webhook " + w.Name
	page.State = webhookState(w)
	page.File = page.placeOf(w.Factory, w.Path)
	if err = v.Get(path+"/setup"+query, &page.Setup); err != nil {
		return page, err
	}
	if w.SignatureScheme != "" {
		page.Scheme = new(api.SignatureScheme)
		if err = v.Get("/signature-schemes/"+url.PathEscape(w.SignatureScheme), page.Scheme); err != nil {
			return page, err
		}
	}
	automations, err := all[api.Automation](v, "/automations", url.Values{"factory": {w.Factory}}, maxListed)
	if err != nil {
		return page, err
	}
	page.Listens = listening(w, automations)
	if page.Rows, err = v.deliveriesTo(w, 8); err != nil {
		return page, err
	}
	page.First = len(page.Rows) == 0 || v.Header.Get("HX-Request") != ""
	stats, err := v.stats(w.Factory, "")
	if err != nil {
		return page, err
	}
	page.Day, page.Since, page.Counting = statsOf(stats, w), stats.Since, !stats.Complete
	return page, page.secrets(v)
}

// secrets reads the state of the webhook's secret. A person who may not read secrets sees the
// page without it.
func (p *Webhook) secrets(v *Visit) error {
	known, err := all[api.Secret](v, "/secrets", nil, maxListed)
	if err = allowed(err); err != nil {
		return err
	}
	if i := slices.IndexFunc(known, func(s api.Secret) bool { return s.Name == p.Webhook.SecretName }); i >= 0 {
		p.Secret = &known[i]
	}
	given, err := all[api.PendingSecret](v, "/pending-secrets", nil, maxListed)
	if err = allowed(err); err != nil {
		return err
	}
	p.Waiting = slices.DeleteFunc(given, func(s api.PendingSecret) bool {
		return s.Factory != p.Webhook.Factory || s.Webhook != p.Webhook.Name
	})
	return nil
}

// allowed returns the error, but nil if the error says that the person may not do this.
func allowed(err error) error {
	if refused := (*Refused)(nil); errors.As(err, &refused) && refused.Status == http.StatusForbidden {
		return nil
	}
	return err
}
