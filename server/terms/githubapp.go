package terms

// AppPermission is a permission of a GitHub App.
type AppPermission struct{ Name, Level, For string }

// AppPermissions are the permissions of a GitHub App for everything that this product does with it
// (SPEC 24.2).
var AppPermissions = []AppPermission{
	{"metadata", "read", "every request"},
	{"contents", "write", "runs fetch and push; the event push"},
	{"pull_requests", "write", "lookups; runs open pull requests; the events of pull requests"},
	{"issues", "write", "answers in issues and pull requests; the events of issues"},
	{"checks", "write", "answers as checks; the events of checks"},
	{"actions", "read", "the event workflow_run"},
	{"members", "read", "startedBy with member"},
}
