package dashboard

import (
	"encoding/json"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/schema"
	"triphammer/server/api"
	"triphammer/server/store"
)

var filterRoutes = []Route{
	sends(get("/automations/test", testFilterPage), "POST /filters/test"),
	post("/automations/test", "", testFilterPage, "POST /filters/test"),
	post("/automations/test/ask", store.ScopeOperate, askFilterPage, "POST /filters/test", "POST /filters/ask"),
}

// sends declares the requests that a page sends. They change nothing.
func sends(r Route, requests ...string) Route {
	r.Sends = requests
	return r
}

// FilterTest is the page Test filter, with the entered test and its result.
type FilterTest struct {
	Page
	Automations []api.Automation
	Webhooks    []string
	Recent      []api.Delivery // deliveries that can be tested
	// These are the entered values.
	Automation, Filter, Delivery, Payload, Headers, Webhook string

	Result *api.FilterVerdict
	Error  string
	Tests  []Tested // of the last deliveries; nil: no delivery was tested
	Would  int      // number of Tests that would trigger
	Nearer string   // the automation that came nearest to the delivery
	Made   string   // the filter for the front matter of an automation
}

// Tested is the test of one stored delivery.
type Tested struct {
	api.Delivery
	Would bool
}

var filterTest = parse("filtertest")

func (FilterTest) template() *template.Template { return filterTest() }

// Status is the status of the page: a test that cannot be made is an error.
func (t FilterTest) Status() int {
	if t.Error != "" {
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// Strip draws the tests of the last deliveries.
func (t FilterTest) Strip() template.HTML { return stripOf(t.Tests) }

func stripOf(tests []Tested) template.HTML {
	yes := make([]bool, len(tests))
	for i, one := range tests {
		yes[i] = one.Would
	}
	return strip(yes)
}

// backTests is the number of stored deliveries for a test.
const backTests = 50

func testFilterPage(v *Visit) (FilterTest, error) { return filterPage(v, "/filters/test") }

// askFilterPage is testFilterPage, but it may ask the sender's API.
func askFilterPage(v *Visit) (FilterTest, error) {
	page, err := filterPage(v, "/filters/ask")
	page.Here, page.Again = "/automations/test", page.To("/automations/test")
	return page, err
}

// filterPage makes the test by a route of the API.
func filterPage(v *Visit, route string) (page FilterTest, err error) {
	if page.Page, err = v.Page("Test filter"); err != nil {
		return page, err
	}
	form := v.Form
	if form == nil {
		form = v.URL.Query()
	}
	page.Automation, page.Webhook, page.Delivery = form.Get("automation"), form.Get("webhook"), strings.TrimSpace(form.Get("delivery"))
	page.Filter, page.Payload = strings.TrimSpace(form.Get("filter")), strings.TrimSpace(form.Get("payload"))
	page.Headers = strings.TrimSpace(form.Get("headers"))
	query := url.Values{}
	if page.Factory != "" {
		query.Set("factory", page.Factory)
	}
	if page.Automations, err = all[api.Automation](v, "/automations", query, 1000); err != nil {
		return page, err
	}
	if page.Webhooks, err = v.webhookNames(page.Factory); err != nil {
		return page, err
	}
	recent, err := v.recent(page.Factory, page.Webhook)
	if err != nil {
		return page, err
	}
	page.Recent = recent[:min(len(recent), 20)]
	if form.Get("make") != "" && page.Delivery != "" && page.Filter == "" {
		var payload json.RawMessage
		if err := v.Get(escaped("/deliveries", page.Delivery)+"/payload", &payload); err != nil {
			page.Error = err.Error()
			return page, nil
		}
		page.Filter, page.Automation = filterOf(payload), ""
	}
	if page.Filter != "" {
		webhook := page.Webhook
		for _, d := range recent {
			if webhook == "" && d.ID == page.Delivery {
				webhook = d.Webhook
			}
		}
		page.Made = frontMatter(webhook, page.Filter)
	}
	if page.Automation == "" && page.Filter == "" && v.Form == nil {
		return page, nil
	}
	request, err := page.request()
	if err != nil {
		page.Error = err.Error()
		return page, nil
	}
	if request.DeliveryID != "" || request.Payload != nil {
		var verdict api.FilterVerdict
		if err := v.Send("POST", route, request, &verdict); err != nil {
			return page.failed(err)
		}
		page.Result = &verdict
	}
	if request.DeliveryID != "" {
		page.Nearer = v.nearest(page.Delivery)
	}
	v.backTest(&page, request, recent)
	return page, nil
}

func (t FilterTest) failed(err error) (FilterTest, error) {
	if refused := (*Refused)(nil); errors.As(err, &refused) && refused.Status < 500 {
		t.Error = refused.Message
		return t, nil
	}
	return t, err
}

// request is the entered test. If both are entered, the delivery counts and not the payload.
func (t FilterTest) request() (r api.TestFilter, err error) {
	r = api.TestFilter{Factory: t.Factory, Webhook: t.Webhook}
	switch {
	case t.Filter != "":
		if !json.Valid([]byte(t.Filter)) {
			return r, errors.New("the filter is no JSON, such as {\"action\": [\"opened\"]}")
		}
		r.Filter = json.RawMessage(t.Filter)
	case t.Automation != "":
		r.Factory, r.Automation, _ = strings.Cut(t.Automation, "/")
	default:
		return r, errors.New("choose an automation, or enter a filter")
	}
	switch {
	case t.Payload != "" && !json.Valid([]byte(t.Payload)):
		return r, errors.New("the payload is no JSON")
	case t.Payload != "":
		r.Payload, r.Headers = json.RawMessage(t.Payload), make(map[string]string)
		for line := range strings.Lines(t.Headers) {
			name, value, ok := strings.Cut(line, ":")
			if !ok && strings.TrimSpace(line) != "" {
				return r, errors.New("a header is written as Name: value, one on each line")
			}
			if ok {
				r.Headers[strings.TrimSpace(name)] = strings.TrimSpace(value)
			}
		}
	default:
		r.DeliveryID = t.Delivery
	}
	return r, nil
}

func (v *Visit) recent(factory, webhook string) ([]api.Delivery, error) {
	query := url.Values{"outcome": {string(store.Accepted)}, "limit": {"50"}}
	for name, value := range map[string]string{"factory": factory, "webhook": webhook} {
		if value != "" {
			query.Set(name, value)
		}
	}
	var list api.List[api.Delivery]
	err := v.Get("/deliveries?"+query.Encode(), &list)
	return list.Entries, err
}

// nearest is the automation that came nearest to a delivery that matched no automation.
func (v *Visit) nearest(delivery string) string {
	var d api.DeliveryDetail
	if v.Get(escaped("/deliveries", delivery), &d) != nil {
		return "" // the verdict says that the delivery is not there
	}
	switch m := api.Nearest(d.Matches); {
	case m == nil:
		return ""
	case m.Matched:
		return m.Automation + ", which wanted it"
	default:
		return m.Automation + " (" + number(m.Held()) + " of " + number(len(m.Conditions)) + " conditions hold)"
	}
}

func (v *Visit) backTest(page *FilterTest, request api.TestFilter, recent []api.Delivery) {
	request.Payload, request.Headers, request.Webhook = nil, nil, ""
	for _, d := range recent[:min(len(recent), backTests)] {
		var verdict api.FilterVerdict
		request.DeliveryID = d.ID
		if request.Automation == "" {
			request.Factory = d.Factory
		}
		if err := v.Send("POST", "/filters/test", request, &verdict); err != nil {
			refused := (*Refused)(nil)
			if errors.As(err, &refused) && refused.Status < 500 && page.Error == "" && page.Result == nil {
				page.Error = refused.Message
				return
			}
			continue // the delivery was deleted meanwhile, or is damaged
		}
		page.Tests = append(page.Tests, Tested{d, verdict.WouldTrigger})
		if verdict.WouldTrigger {
			page.Would++
		}
	}
}

// telling are the fields that tell the kind of event in a payload.
var telling = []string{"action", "event", "event_type", "type", "state", "status", "conclusion", "ref", "full_name", "environment", "name", "severity", "level"}

// filterOf makes a filter of the telling fields of a payload.
func filterOf(payload []byte) string {
	var body any
	if json.Unmarshal(payload, &body) != nil {
		return "{}"
	}
	n := 0
	pick := func(fields map[string]any) map[string]any {
		picked := make(map[string]any)
		for _, name := range telling {
			if text, ok := fields[name].(string); ok && text != "" && len(text) <= 80 && n < 6 {
				picked[name] = []string{text}
				n++
			}
		}
		return picked
	}
	fields, _ := body.(map[string]any)
	made := pick(fields)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if inner, ok := fields[name].(map[string]any); ok && len(made) < 4 && made[name] == nil {
			if picked := pick(inner); len(picked) > 0 {
				made[name] = picked
			}
		}
	}
	text, err := json.MarshalIndent(made, "", "  ")
	if err != nil {
		return "{}"
	}
	return string(text)
}

// frontMatter is a filter in the form of an automation's front matter; empty: the filter is not
// JSON.
func frontMatter(webhook, filter string) string {
	trigger := map[string]any{"provider": "webhook", "event": "received"}
	inner := map[string]any{"payload": json.RawMessage(filter)}
	if webhook != "" {
		inner["webhooks"] = []string{webhook}
	}
	trigger["filter"] = inner
	text, err := json.Marshal(map[string]any{"triggers": []any{trigger}})
	if err != nil {
		return ""
	}
	yaml, err := schema.YAML(text)
	if err != nil {
		return ""
	}
	return string(yaml)
}
