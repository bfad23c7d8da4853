package dashboard

import (
	"cmp"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"triphammer/server/api"
	"triphammer/server/store"
)

const aWebhook = "/factories/:name/webhooks/:webhook"

var webhookEditRoutes = []Route{
	{Method: "GET", Path: "/webhooks/new", Scope: store.ScopeManage, handle: func(v *Visit) (Content, error) { return newWebhookPage(v) }},
	post("/factories/:name/webhooks", store.ScopeManage, createWebhook, "POST /factories/:name/webhooks"),
	post(aWebhook+"/rotate", store.ScopeManage, rotateWebhook, "POST "+aWebhook+"/rotate"),
	post(aWebhook+"/enable", store.ScopeManage, enableWebhook(true), "PATCH "+aWebhook),
	post(aWebhook+"/disable", store.ScopeManage, enableWebhook(false), "PATCH "+aWebhook),
	post(aWebhook+"/delete", store.ScopeManage, deleteWebhook, "DELETE "+aWebhook),
	post(aWebhook+"/pause", store.ScopeOperate, pauseOf("webhook"), "POST "+aWebhook+"/pause"),
	post(aWebhook+"/resume", store.ScopeOperate, resumeOf("webhook"), "POST "+aWebhook+"/resume"),
	post("/factories/:name/automations/:automation/pause", store.ScopeOperate, pauseOf("automation"), "POST /factories/:name/automations/:automation/pause"),
	post("/factories/:name/automations/:automation/resume", store.ScopeOperate, resumeOf("automation"), "POST /factories/:name/automations/:automation/resume"),
}

// NewWebhook is the form for a new webhook.
type NewWebhook struct {
	Page
	Home       api.FactoryStatus
	CommitSeen string // the commit that the person has seen
	Schemes    []api.SignatureScheme
	Secrets    []api.Secret
	Webhook    api.NewWebhook
	Auth       string // token, signature, url_token
	How        string // generate, value, name, later
	Scheme     string
	Failed     string
	Findings   []finding
}

var newWebhook = parse("webhook_new")

func (NewWebhook) template() *template.Template { return newWebhook() }

// Status implements Status.
func (p NewWebhook) Status() int {
	if p.Failed != "" {
		return http.StatusUnprocessableEntity
	}
	return http.StatusOK
}

// File is the path that the new webhook gets.
func (p NewWebhook) File() string { return "webhooks/" + cmp.Or(p.Webhook.Name, "NAME") + ".yaml" }

func newWebhookPage(v *Visit) (page NewWebhook, err error) {
	page.Auth, page.How = "token", "generate"
	if scheme := v.Query("scheme"); scheme != "" {
		page.Auth, page.Scheme = "signature", scheme
	}
	return page, page.load(v)
}

func (p *NewWebhook) load(v *Visit) (err error) {
	if p.Page, err = v.Page("New webhook"); err != nil {
		return err
	}
	p.Here = "/webhooks"
	if name := v.Param("name"); name != "" {
		p.Factory = name
	}
	if p.Home, err = p.chosen(); err != nil {
		return err
	}
	var schemes api.List[api.SignatureScheme]
	if err = v.Get("/signature-schemes", &schemes); err != nil {
		return err
	}
	p.Schemes = schemes.Entries
	if p.Secrets, err = all[api.Secret](v, "/secrets", nil, maxListed); allowed(err) != nil {
		return err
	}
	if p.CommitSeen == "" && p.Home.Hosted {
		var files api.FactoryFiles
		if err = v.Get(escaped("/factories", p.Home.Name, "files"), &files); err != nil {
			return err
		}
		p.CommitSeen = files.Commit
	}
	return nil
}

func createWebhook(v *Visit) (Content, error) {
	value := func(name string) string { return strings.TrimSpace(v.Form.Get(name)) }
	page := NewWebhook{Auth: value("auth"), How: value("how"), Scheme: value("scheme"), CommitSeen: value("base")}
	req := api.NewWebhook{Name: value("name"), Commit: api.Commit{Message: value("message")}}
	set := func(field **string, text string) {
		if text != "" {
			*field = &text
		}
	}
	set(&req.AuthMode, page.Auth)
	set(&req.DeliveryIDHeader, value("id_header"))
	set(&req.SecretName, value("secret_name"))
	if page.Auth == "signature" {
		set(&req.SignatureScheme, page.Scheme)
	}
	switch page.How {
	case "value":
		req.Secret.Value = typed(v.Form.Get("value"))
	case "name":
		req.Secret.Name = value("existing")
	case "later":
		req.Secret.Later = true
	} // without any of these, the API generates the secret, or says that only the sender makes it
	var made api.WebhookChange
	err := v.Send("POST", escaped("/factories", v.Param("name"), "webhooks"), req, &made)
	if err == nil {
		return created(v, made, "created")
	}
	refused, err := told(err)
	if err != nil {
		return nil, err
	}
	req.Secret.Value = ""
	page.Webhook, page.Failed = req, refused.Message
	if err := page.load(v); err != nil {
		return nil, err
	}
	page.Findings = plainFindings(refused)
	return page, nil
}

// plainFindings are the findings of a refusal, without places in a text.
func plainFindings(refused *Refused) []finding {
	return findingsOf(verdictOf(refused), func(string) string { return "" }, func(string, int) string { return "" })
}

// WebhookMade is the page after a webhook was made or its secret was rotated. It shows the secret
// once.
type WebhookMade struct {
	Page
	Change api.WebhookChange
	State  state
	Setup  api.WebhookSetup
	Did    string // created, rotated
}

var webhookMade = parse("webhook_made")

func (WebhookMade) template() *template.Template { return webhookMade() }

func created(v *Visit, made api.WebhookChange, did string) (Content, error) {
	page := WebhookMade{Change: made, State: webhookState(&made.Webhook), Did: did}
	var err error
	if page.Page, err = v.Page("Webhook " + made.Name); err != nil {
		return nil, err
	}
	page.Here = "/webhooks"
	page.limit(made.Factory)
	page.Again = page.In(made.Factory, "/webhooks/"+named(made.Name))
	if made.UID == "" { // the webhook is not live
		return page, nil
	}
	err = v.Get("/webhooks/"+url.PathEscape(made.UID)+"/setup", &page.Setup)
	return page, err
}

// backToWebhook sends the browser to the page of the webhook.
func backToWebhook(v *Visit, said string) SeeOther {
	return SeeOther{To: to("/webhooks/"+named(v.Param("webhook")), "factory", v.Param("name")), Said: said}
}

// rotateWebhook gives a webhook a new secret, but only once: sending the form again changes
// nothing.
func rotateWebhook(v *Visit) (Content, error) {
	var now api.Webhook
	query := "?" + url.Values{"factory": {v.Param("name")}}.Encode()
	if err := v.Get(escaped("/webhooks", v.Param("webhook"))+query, &now); err != nil {
		return nil, err
	}
	if v.Form.Get("generation") != strconv.FormatInt(now.SecretGeneration, 10) {
		return backToWebhook(v, "The secret was rotated already, so nothing was changed. It cannot be shown again."), nil
	}
	req := api.WebhookRotation{}
	if v.Form.Get("how") == "value" {
		if req.Value = typed(v.Form.Get("value")); req.Value == "" {
			return nil, &Refused{Problem: api.NewProblem(api.InvalidRequest, "the new value is empty: nothing was changed")}
		}
	}
	var made api.WebhookChange
	if err := v.Send("POST", escaped("/factories", v.Param("name"), "webhooks", v.Param("webhook"), "rotate"), req, &made); err != nil {
		return nil, err
	}
	return created(v, made, "rotated")
}

func enableWebhook(on bool) func(*Visit) (SeeOther, error) {
	return func(v *Visit) (SeeOther, error) {
		var done api.WebhookChange
		err := v.Send("PATCH", escaped("/factories", v.Param("name"), "webhooks", v.Param("webhook")), api.WebhookPatch{WebhookKeys: api.WebhookKeys{Enabled: &on}}, &done)
		said := "Disabled: senders get 404 from now on. "
		if on {
			said = "Enabled: deliveries are taken again. "
		}
		return backToWebhook(v, said+committed(done.Change)), err
	}
}

func deleteWebhook(v *Visit) (SeeOther, error) {
	name := v.Param("webhook")
	if v.Form.Get("sure") != name {
		return backToWebhook(v, "Nothing was deleted: to delete the webhook, type its name, "+name+"."), nil
	}
	var done api.WebhookChange
	err := v.Send("DELETE", escaped("/factories", v.Param("name"), "webhooks", name), nil, &done)
	said := "The webhook " + name + " is deleted: its senders get 404."
	if len(done.Listeners) > 0 {
		said += " Nothing delivers to " + strings.Join(done.Listeners, ", ") + " from it any more."
	}
	return SeeOther{To: to("/webhooks", "factory", v.Param("name")), Said: said}, err
}

// pauseOf is the action that pauses a webhook or an automation.
func pauseOf(kind string) func(*Visit) (SeeOther, error) {
	return func(v *Visit) (SeeOther, error) {
		name, req := v.Param(kind), api.PauseRequest{Reason: strings.TrimSpace(v.Form.Get("reason"))}
		until, err := v.until()
		if err != nil {
			return SeeOther{}, err
		}
		req.Until = until
		err = v.Send("POST", escaped("/factories", v.Param("name"), kind+"s", name, "pause"), req, nil)
		said := name + " is paused until somebody resumes it."
		if until != nil {
			said = name + " is paused until " + until.UTC().Format("2 Jan 15:04") + " UTC."
		}
		return SeeOther{To: to("/"+kind+"s/"+named(name), "factory", v.Param("name")), Said: said}, err
	}
}

func resumeOf(kind string) func(*Visit) (SeeOther, error) {
	return func(v *Visit) (SeeOther, error) {
		name := v.Param(kind)
		err := v.Send("POST", escaped("/factories", v.Param("name"), kind+"s", name, "resume"), nil, nil)
		return SeeOther{To: to("/"+kind+"s/"+named(name), "factory", v.Param("name")), Said: name + " goes on."}, err
	}
}

// SecretNames are the managed secrets that a webhook can use.
func (p NewWebhook) SecretNames() (names []string) {
	for _, s := range p.Secrets {
		names = append(names, s.Name)
	}
	slices.Sort(names)
	return names
}
