package factory

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"triphammer/schema"
)

// MCPServer is a server of the Model Context Protocol that the agent gets: an identifier
// that the operator of a Triphammer server resolves, a program with its arguments, or a URL.
// ${NAME} in a value of Env or Headers and in the URL stands for a variable of the run.
type MCPServer struct {
	Name    string            `json:"name"`
	WarpID  string            `json:"warp_id,omitempty"`
	Command string            `json:"command,omitempty"`
	Args    []string          `json:"args,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	URL     string            `json:"url,omitempty"`
	Headers map[string]string `json:"headers,omitempty"`
	// Outside are the variables in Headers of a definition, which may stand for managed secrets that the
	// run does not have. Who asks for a run cannot name such secrets.
	Outside []string `json:"outside,omitempty"`
}

// Variable matches a reference to a variable of the run in a value of an MCP server.
var Variable = regexp.MustCompile(`\$\{([A-Za-z_][A-Za-z0-9_]*)\}`)

// Variables are the variables to which a value refers.
func Variables(value string) []string {
	var all []string
	for _, m := range Variable.FindAllStringSubmatch(value, -1) {
		all = append(all, m[1])
	}
	return all
}

// mcpServers reads a mapping of servers, sorted by name.
func (l *loader) mcpServers(d *document, n *schema.Node, where string) []MCPServer {
	if n == nil || n.Kind != schema.Mapping {
		return nil
	}
	all := []MCPServer{}
	for _, f := range n.Fields {
		if f.Value.Kind == schema.Mapping {
			all = append(all, mcpServer(d, f, where+"."+f.Key, l.opt.Strict))
		}
	}
	slices.SortFunc(all, func(a, b MCPServer) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// ReadMCPServers reads an operator's file, which maps the identifiers in definitions to
// servers.
func ReadMCPServers(path string, text []byte) (map[string]MCPServer, schema.Diagnostics) {
	return readMCPServers(path, text, false)
}

// CheckMCPServers checks servers that do not come from a file, by the rules of definitions.
// where names their place in the findings.
func CheckMCPServers(where string, servers map[string]MCPServer) schema.Diagnostics {
	named := make(map[string]any, len(servers))
	for name, m := range servers {
		keys := make(map[string]any)
		for key, value := range map[string]string{"warpId": m.WarpID, "command": m.Command, "url": m.URL} {
			if value != "" {
				keys[key] = value
			}
		}
		if m.Args != nil {
			keys["args"] = m.Args
		}
		if m.Env != nil {
			keys["env"] = m.Env
		}
		if m.Headers != nil {
			keys["headers"] = m.Headers
		}
		named[name] = keys
	}
	text, _ := json.Marshal(named) // texts always encode; JSON is YAML
	_, found := readMCPServers(where, text, true)
	return found
}

func readMCPServers(path string, text []byte, identifiers bool) (map[string]MCPServer, schema.Diagnostics) {
	c := &schema.Collector{Path: path}
	doc := schema.Parse(c, text, schema.Mapping)
	if doc == nil {
		return nil, c.Found
	}
	schema.Check(c, doc.Root, &schema.MCPServers, "")
	d := &document{Document: doc, Collector: c}
	all := make(map[string]MCPServer)
	for _, f := range doc.Root.Fields {
		if f.Value.Kind != schema.Mapping {
			continue
		}
		if f.Value.Get("warpId") != nil && !identifiers {
			c.Error(f.Value.KeyAt("warpId"), schema.InvalidMCP, "write command or url", f.Key+" is the identifier itself")
		}
		all[f.Key] = mcpServer(d, f, f.Key, false)
	}
	return all, c.Found
}

func mcpServer(d *document, f schema.Field, where string, strict bool) MCPServer {
	n := f.Value
	m := MCPServer{
		Name: f.Key, WarpID: strings.TrimSpace(textOf(n.Get("warpId"))), Command: textOf(n.Get("command")), Args: wordsOf(n.Get("args")),
		Env: plainTexts(n.Get("env")), URL: textOf(n.Get("url")), Headers: plainTexts(n.Get("headers")),
	}
	m.Outside = Variables(strings.Join(slices.Sorted(maps.Values(m.Headers)), "\n"))
	kind := "" // the first key that says what kind of server it is
	for _, key := range []string{"warpId", "command", "url"} {
		switch {
		case n.Get(key) == nil:
		case kind == "":
			kind = key
		case !strict: // strict refuses the keys anyway
			d.Error(n.KeyAt(key), schema.InvalidMCP, "keep one of them", fmt.Sprintf("%s has both %s and %s", where, kind, key))
		}
	}
	switch {
	case kind == "" && strict:
		d.Error(n.At, schema.InvalidMCP, "add warpId: TEXT", fmt.Sprintf("key %q is missing", where+".warpId"))
	case kind == "":
		d.Error(n.At, schema.InvalidMCP, "add warpId: TEXT, command: PROGRAM or url: URL", where+" has none of warpId, command and url")
	}
	for key, of := range map[string]string{"args": "command", "env": "command", "headers": "url"} {
		if n.Get(key) != nil && kind != "" && kind != of && !strict {
			d.Error(n.KeyAt(key), schema.InvalidMCP, "take it out", fmt.Sprintf("%s.%s means nothing without %s", where, key, of))
		}
	}
	if kind == "url" && !strict && m.URL != "" && !webURL.MatchString(m.URL) {
		d.Error(n.Get("url").At, schema.InvalidMCP, "write https://…", where+".url is not the address of a server")
	}
	return m
}

func plainTexts(n *schema.Node) map[string]string {
	if n == nil || n.Kind != schema.Mapping || len(n.Fields) == 0 {
		return nil
	}
	all := make(map[string]string, len(n.Fields))
	for _, f := range n.Fields {
		all[f.Key] = f.Value.Text
	}
	return all
}
