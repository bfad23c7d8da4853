package dashboard

import "html/template"

// SignIn is the page of a person who is not signed in.
type SignIn struct {
	Page
	To       string // path of the page to open afterwards
	Provider string // provider for the sign-in; empty: people sign in only by a link
	// These are for a link. The form of the page uses up the link.
	Action, Who, Role string
}

var signIn = parse("signin")

func (SignIn) template() *template.Template { return signIn() }

// Start is the address at which the sign-in at the provider begins.
func (p SignIn) Start() string { return p.Page.To("/auth/oidc", "to", p.To) }
