package dashboard

import (
	"bytes"
	"encoding/json"
	"html/template"
	"strings"

	"triphammer/factory/jsonscan"
	"triphammer/server/delivery"
	"triphammer/server/store"
)

// Deliveries is the delivery log.
type Deliveries struct {
	Page
	Deliveries []*store.Delivery
	Next       string // cursor of the next page, or empty
}

// Delivery is one delivery with its belt.
type Delivery struct {
	Page
	*delivery.Trace
	Runs      []DeliveryRun // those that are still stored
	Payload   string
	Damaged   bool // the stored payload differs from the one that arrived
	Truncated bool
}

// DeliveryRun is a run of a delivery, with how far it came.
type DeliveryRun struct {
	*store.Run
	Belt []delivery.Stage
}

var deliveries = parse("deliveries")

func (Deliveries) template() *template.Template { return deliveries() }

var oneDelivery = parse("delivery")

func (Delivery) template() *template.Template { return oneDelivery() }

// PayloadText is the text of a payload on its page. It is indented, unless it is too long
// or nested too deeply.
func PayloadText(payload []byte) (text string, truncated bool) {
	if len(payload) > maxShown {
		return strings.ToValidUTF8(string(payload[:maxShown]), ""), true
	}
	var b bytes.Buffer
	if depth, err := jsonscan.Depth(payload); err != nil || depth > maxIndent || json.Indent(&b, payload, "", "  ") != nil {
		return string(payload), false
	}
	return b.String(), false
}

const (
	maxShown  = 64 << 10 // bytes of a payload on its page
	maxIndent = 64       // levels; the size of an indented text grows with their square
)
