package kubernetes

// Access is a right in the namespace of the runs.
type Access struct {
	Group, Resource string // of the API; the core group is empty
	Subresource     string
	Verbs           []string
	Why             string // for people
}

// Needed are all rights that the executor needs in a cluster. The Helm chart makes its role from
// this list, and Check asks for each right. A test compares the list with the calls of the other
// tests: no right is missing, and no right is unused.
var Needed = []Access{
	{Group: "batch", Resource: "jobs", Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}, Why: "each attempt of a run is a Job"},
	{Resource: "secrets", Verbs: []string{"create", "patch"}, Why: "what a run is given goes with its Job; the token of a GitHub App in it is renewed, and the part of a budget"},
	{Group: "networking.k8s.io", Resource: "networkpolicies", Verbs: []string{"create"}, Why: "a run whose network is limited has one"},
	{Resource: "pods", Verbs: []string{"list", "watch"}, Why: "the state of a run"},
	{Resource: "pods", Subresource: "log", Verbs: []string{"get"}, Why: "the report of a run"},
	{Resource: "events", Verbs: []string{"list"}, Why: "why a run does not begin"},
	{Resource: "resourcequotas", Verbs: []string{"list"}, Why: "preflight tells what the namespace has left"},
}

// resource is the name of the resource in the form of a role's rules.
func (a *Access) resource() string {
	if a.Subresource != "" {
		return a.Resource + "/" + a.Subresource
	}
	return a.Resource
}
