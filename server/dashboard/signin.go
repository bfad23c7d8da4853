package dashboard

import "html/template"

// SignIn is the page of somebody who is not signed in.
type SignIn struct {
	Page
	To       string // where to go afterwards
	Provider string // where to sign in; empty: nowhere but by a link
	// Of a link: it is used up by the form of the page.
	Action, Who, Role string
}

var signIn = parse("signin")

func (SignIn) template() *template.Template { return signIn() }

// Start is the address at which the sign-in at the provider begins.
func (p SignIn) Start() string { return p.Page.To("/auth/oidc", "to", p.To) }
