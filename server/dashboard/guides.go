package dashboard

import (
	"html/template"

	"triphammer/docs"
	"triphammer/server/dashboard/markdown"
	"triphammer/server/store"
)

var guideRoutes = []Route{
	get("/docs", func(v *Visit) (Guide, error) { return v.guide(docs.Index) }),
	get("/docs/:page", func(v *Visit) (Guide, error) { return v.guide(v.Param("page")) }),
}

// Guide is a page of the documentation, which the program contains.
type Guide struct {
	Page
	Name     string
	Text     template.HTML
	Sections []markdown.Section
}

var guide = parse("guide")

func (Guide) template() *template.Template { return guide() }

func (v *Visit) guide(name string) (page Guide, err error) {
	text, ok := docs.Text(name)
	if !ok {
		return page, store.ErrNotFound
	}
	title, rest := docs.Title(text)
	if page.Page, err = v.Page(title); err != nil {
		return page, err
	}
	page.Name = name
	page.Text, page.Sections, err = markdown.Guide(rest, page.Base, page.Theme, assetURL)
	return page, err
}

// Index tells whether this is the page that lists the other guides.
func (g Guide) Index() bool { return g.Name == docs.Index }

// Guide is the address of a section of a guide, such as "filters#trying-one".
func (p Page) Guide(to string) string { return p.Base + markdown.Path(to) }
