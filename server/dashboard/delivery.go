package dashboard

import (
	"bytes"
	"encoding/json"
	"errors"
	"html/template"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"triphammer/factory/jsonscan"
	"triphammer/server/api"
	"triphammer/server/store"
)

// Delivery is the page of a delivery, with its result and the reasons.
type Delivery struct {
	Page
	api.DeliveryDetail
	Nearest   *api.Match
	Others    []api.Match
	Payload   []Line // lines of the payload
	Plain     string // the payload, if it is too deep for lines
	Truncated bool
	Damaged   bool // the stored payload is not the payload that arrived
	Repeats   []api.Delivery
	Replays   []api.Delivery
	Curl      string // a command that sends the payload again; empty: there is none
}

// Line is a line of a payload.
type Line struct{ Text, Class, Note string }

var oneDelivery = parse("delivery")

func (Delivery) template() *template.Template { return oneDelivery() }

// State is the result of the delivery.
func (d Delivery) State() state { return deliveryState(d.Delivery()) }

// Delivery is the entry of the log.
func (d Delivery) Delivery() api.Delivery { return d.DeliveryDetail.Delivery }

// StoppedAt is the station of the belt at which the delivery stopped; empty: none is known.
func (d Delivery) StoppedAt() string {
	for _, s := range d.Belt {
		if s.Outcome == "stopped" {
			return s.Stage
		}
	}
	return ""
}

// Stations are the cells of the large belt.
func (d Delivery) Stations() []station {
	b := deliveryBelt(d.Delivery())
	say := d.State().Word
	if b.Head == len(stages)-1 {
		say = became(d.Delivery()).What
	}
	return stations(d.Belt, b.Kind, say)
}

func deliveryPage(v *Visit) (page Delivery, err error) {
	id := url.PathEscape(v.Param("id"))
	if page.Page, err = v.Page("Delivery " + v.Param("id")); err != nil {
		return page, err
	}
	if err := v.Get("/deliveries/"+id, &page.DeliveryDetail); err != nil {
		return page, err
	}
	var payload json.RawMessage
	if page.Outcome == string(store.Accepted) {
		refused := (*Refused)(nil)
		switch err := v.Get("/deliveries/"+id+"/payload", &payload); {
		case err == nil:
		case errors.As(err, &refused) && refused.Status == http.StatusNotFound:
		default:
			page.Damaged = true // an accepted payload was JSON
		}
	}
	page.Nearest = api.Nearest(page.Matches)
	for _, m := range page.Matches {
		if m.Automation != page.Nearest.Automation {
			page.Others = append(page.Others, m)
		}
	}
	page.showPayload(payload)
	for name, into := range map[string]*[]api.Delivery{"duplicate_of": &page.Repeats, "replay_of": &page.Replays} {
		var list api.List[api.Delivery]
		if err := v.Get("/deliveries?limit=10&about=true&"+name+"="+id, &list); err != nil {
			return page, err
		}
		*into = list.Entries
	}
	if payload != nil {
		page.Curl = v.curl(page.DeliveryDetail)
	}
	return page, nil
}

// curl is a command that sends the payload to the webhook again; empty: the webhook is gone.
func (v *Visit) curl(d api.DeliveryDetail) string {
	var hook api.Webhook
	if v.Get(escaped("/webhooks", d.WebhookUID), &hook) != nil {
		return ""
	}
	command := []string{"triphammer deliveries payload " + d.ID + " | curl -sS --data-binary @-"}
	for _, name := range slices.Sorted(maps.Keys(d.Headers)) {
		command = append(command, "-H "+shellWord(name+": "+d.Headers[name]))
	}
	return strings.Join(append(command, shellWord(hook.URL)), " ")
}

const (
	maxShown  = 64 << 10 // bytes of a payload on its page
	maxIndent = 64       // levels; the size of an indented text grows with their square
)

// showPayload makes lines of a payload, and marks the lines that the nearest automation looked at.
func (d *Delivery) showPayload(payload []byte) {
	var marks []api.Condition
	if d.Nearest != nil {
		marks = d.Nearest.Conditions
	}
	var b bytes.Buffer
	depth, err := jsonscan.Depth(payload)
	if len(payload) > maxShown || err != nil || depth > maxIndent || json.Indent(&b, payload, "", "  ") != nil {
		d.Truncated = len(payload) > maxShown
		d.Plain = strings.ToValidUTF8(string(payload[:min(len(payload), maxShown)]), "")
		return
	}
	marked := make(map[string]bool)
	for i, path := range paths(b.String()) {
		line := path.line
		if i >= mostLines {
			d.Truncated = true
			return
		}
		shown := Line{Text: line}
		for _, c := range marks {
			if path.name != "" && sameField(c.Path, path.name) && !marked[c.Path] {
				marked[c.Path] = true
				shown.Class, shown.Note = "yes", "holds"
				if !c.OK {
					shown.Class, shown.Note = "no", d.Nearest.Automation+" wants "+c.Want
				}
			}
		}
		d.Payload = append(d.Payload, shown)
	}
}

// mostLines limits the lines of a payload on its page.
const mostLines = 1500

// sameField tells whether a condition is about a field. Elements of arrays have no number.
func sameField(condition, field string) bool {
	plain := func(path string) string {
		for {
			open := strings.IndexByte(path, '[')
			end := strings.IndexByte(path, ']')
			if open < 0 || end < open {
				return path
			}
			path = path[:open] + path[end+1:]
		}
	}
	return plain(condition) == field
}

type pathLine struct{ line, name string }

// paths are the lines of indented JSON, with the paths of their fields in the form of filters.
func paths(text string) (all []pathLine) {
	stack := []string{"payload"}
	for line := range strings.SplitSeq(text, "\n") {
		trimmed := strings.TrimSpace(line)
		name := stack[len(stack)-1]
		if strings.HasPrefix(trimmed, "}") || strings.HasPrefix(trimmed, "]") {
			if len(stack) > 1 {
				stack = stack[:len(stack)-1]
			}
			all = append(all, pathLine{line: line})
			continue
		}
		if end := endOfString(trimmed); end > 0 && strings.HasPrefix(trimmed[end:], ": ") {
			var key string
			_ = json.Unmarshal([]byte(trimmed[:end]), &key) // endOfString found a string
			name += "." + key
		}
		all = append(all, pathLine{line, name})
		if strings.HasSuffix(trimmed, "{") || strings.HasSuffix(trimmed, "[") {
			stack = append(stack, name)
		}
	}
	return all
}

// endOfString is the length of the JSON string at the beginning of a text; 0: there is none.
func endOfString(text string) int {
	if !strings.HasPrefix(text, `"`) {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return 0
}

func replayDelivery(v *Visit) (SeeOther, error) {
	var done api.Replayed
	if err := v.Send("POST", escaped("/deliveries", v.Param("id"))+"/replay", nil, &done); err != nil {
		return SeeOther{}, err
	}
	said := "Replayed: nothing matched it now."
	if n := len(done.Runs); n > 0 {
		said = "Replayed: it started " + plural(n, "run") + "."
	}
	return SeeOther{To: escaped("/deliveries", done.DeliveryID), Said: said}, nil
}
