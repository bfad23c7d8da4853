package kubernetes

// Access is a right in the namespace of the runs.
type Access struct {
	Group, Resource string // of the API; the group of the core is empty
	Subresource     string
	Verbs           []string
	Why             string // for people
}

// Needed is everything that the executor does in a cluster. The role in the Helm chart is made
// of it, preflight asks for each, and a test holds it to the calls of the other tests: none is
// missing, and none is left over.
var Needed = []Access{
	{Group: "batch", Resource: "jobs", Verbs: []string{"create", "get", "list", "watch", "patch", "delete"}, Why: "each attempt of a run is a Job"},
	{Resource: "secrets", Verbs: []string{"create"}, Why: "what a run is given goes with its Job; it is never read again"},
	{Group: "networking.k8s.io", Resource: "networkpolicies", Verbs: []string{"create"}, Why: "a run whose network is limited has one"},
	{Resource: "pods", Verbs: []string{"list", "watch"}, Why: "the state of a run"},
	{Resource: "pods", Subresource: "log", Verbs: []string{"get"}, Why: "the report of a run"},
	{Resource: "events", Verbs: []string{"list"}, Why: "why a run does not begin"},
	{Resource: "resourcequotas", Verbs: []string{"list"}, Why: "preflight tells what the namespace has left"},
}

// resource is the name of the resource as rules of roles have it.
func (a *Access) resource() string {
	if a.Subresource != "" {
		return a.Resource + "/" + a.Subresource
	}
	return a.Resource
}
