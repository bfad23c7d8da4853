package server

import (
	"cmp"

	"github.com/gin-gonic/gin"

	"triphammer/server/api"
)

const (
	noTasks      = "this server has no tasks: the work that a factory took is its conversations. GET " + api.Base + "/agent/runs?factory_uid=NAME lists their runs, and GET " + api.Base + "/agent/conversations/ID reads one"
	noBenchmarks = "this server runs no benchmarks. Suites are files of the definitions, which are checked: commit benchmarks/NAME/suite.yaml. GET " + api.Base + "/factories/NAME/files has them. " +
		"To compare agents, start a run for each task with POST " + api.Base + "/agent/runs, and compare their request_usage"
	noScores = "this server scores no runs. Scorers are files of the definitions, which are checked: commit scorers/NAME/scorer.md. GET " + api.Base + "/factories/NAME/files has them"
	noEgress = "this server does not know from which addresses its runs call others: that is up to the network of its machines. " +
		"What a run may reach is up to its environment (network in environments/NAME.yaml)"
)

// factoryUnsupported are the routes below /factory/:uid that have no counterpart here, with
// the reason and the way to do it.
var factoryUnsupported = []struct{ method, path, why string }{
	{"GET", "/tasks", noTasks},
	{"POST", "/tasks", noTasks},
	{"GET", "/tasks/:task", noTasks},
	{"PATCH", "/tasks/:task", noTasks},
	{"DELETE", "/tasks/:task", noTasks},
	{"POST", "/tasks/:task/cancel", noTasks + ". POST " + api.Base + "/agent/runs/ID/cancel cancels a run"},
	{"GET", "/task-by-run", noTasks},
	{"GET", "/task-by-conversation", noTasks},
	{"GET", "/benchmarks/suites", noBenchmarks},
	{"POST", "/benchmarks/suites", noBenchmarks},
	{"GET", "/benchmarks/suites/:suite", noBenchmarks},
	{"POST", "/benchmarks/suites/:suite/runs", noBenchmarks},
	{"GET", "/benchmarks/runs", noBenchmarks},
	{"GET", "/benchmarks/runs/:run", noBenchmarks},
	{"GET", "/benchmarks/runs/:run/results", noBenchmarks},
}

// unsupportedRoutes adds the routes of the published API that have no counterpart here. They
// answer 422, so that a client learns why and what to do instead.
func (s *Server) unsupportedRoutes(runs, readRuns *gin.RouterGroup) {
	for _, r := range factoryUnsupported {
		group := runs
		if r.method == "GET" {
			group = readRuns
		}
		group.Handle(r.method, "/factory/:uid"+r.path, func(g *gin.Context) {
			_, err := theFactory(g.Request.Context(), callOf(g))
			s.failWith(g, cmp.Or(err, api.Refuse(api.NotSupported, r.why)))
		})
	}
	refused := func(why string) gin.HandlerFunc { // whatever the parameters are
		return func(g *gin.Context) { s.failWith(g, api.Refuse(api.NotSupported, why)) }
	}
	readRuns.GET("/networking/egress-ranges", refused(noEgress))
	runs.POST("/factory/scorers", refused(noScores))
	for _, path := range []string{"/factory/scorers", "/factory/scorers/:scorer/results", "/factory/scorers/:scorer/results/reasons", "/factory/runs/:id/scores"} {
		readRuns.GET(path, refused(noScores))
	}
	runs.POST("/agent/identities", refused("agents are files of the definitions: commit agents/NAME/agent.md to the repository of the factory, or for a hosted one use POST "+api.Base+"/factories/NAME/agents"))
}
