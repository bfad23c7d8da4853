package server

import "testing/fstest"

// publishedTree has what the routes of the published API show of definitions.
var publishedTree = fstest.MapFS{
	"factory.yaml": {Data: []byte(`schemaVersion: v1alpha1
name: Test
alias: tests
repositories: [{owner: acme, name: app}]
agentDefaults:
  harness: {type: claude, model: large, auth: {source: managedSecret, secretName: MODEL_KEY}}
  environmentId: e
`)},
	"agents/boss/agent.md":   {Data: []byte("---\nagentType: FOREMAN\ndescription: Decides.\nmcpServers:\n  docs: {url: 'https://docs.example.com/mcp', headers: {Authorization: '${A_KEY}'}}\nsecrets: [A_KEY]\n---\nYou decide.\n")},
	"scorers/tidy/scorer.md": {Data: []byte("---\nagents: [boss]\nlabels: [{value: tidy, score: 1}, {value: untidy, score: 0}]\npassingScore: 0.5\nmodel: judge\n---\nIs it tidy?\n")},
	"benchmarks/repairs/suite.yaml": {Data: []byte(`name: Repairs
agent: boss
configurations:
  - {name: now, role: baseline, agents: [{agent: boss, model: small}]}
  - {name: next, role: candidate, agents: [{agent: boss, harness: {type: claude, model: large}}]}
tasks: [one]
`)},
	"benchmarks/repairs/tasks/one.yaml": {Data: []byte("title: One\nprompt: Repair it.\nsuccessCriteria: The tests pass.\n")},
}
