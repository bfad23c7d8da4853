package dashboard

import (
	"html/template"

	"triphammer/server/api"
	"triphammer/server/delivery"
)

// FilterTest is the form of Test filter, with the values that were entered and the result.
type FilterTest struct {
	Page
	Automations []api.Automation
	Webhooks    []string
	Automation  string // FACTORY/NAME
	Webhook     string
	Delivery    string
	Payload     string
	Result      *delivery.TestResult
	Error       string
}

var filterTest = parse("filtertest")

func (FilterTest) template() *template.Template { return filterTest() }
