package native

const (
	linearTeam    = "7e000000-0000-4000-8000-000000000011"
	linearState   = "5a000000-0000-4000-8000-000000000041"
	linearAda     = "a0000000-0000-4000-8000-000000000021"
	linearGrace   = "a0000000-0000-4000-8000-000000000022"
	linearBug     = "1b000000-0000-4000-8000-000000000031"
	linearProject = "90000000-0000-4000-8000-000000000051"
)

var linearTruths = map[string][]verdict{
	"issue_created": {
		yes("a team by identifier", "team_ids="+linearTeam),
		yes("a team by name or key, a project by name", "teams=pay; projects=checkout"),
		yes("labels without regard to case", "labels=BUG"),
		yes("who is mentioned", "mentioned_user_ids="+linearGrace),
		no("updated", "", "action=update"),
		no("another team", "teams=Core"),
		no("another label", "labels=p1"),
		no("a project", "", "type=Project"),
		no("somebody is mentioned by name alone", "mentioned_user_ids=grace"),
		no("another creator", "creator_ids="+linearGrace),
	},
	"issue_labeled": {
		yes("the new label", "labels=bug"),
		yes("a label of a new issue", "labels=bug", "action=create", "-updatedFrom"),
		no("a label that it had before", "labels=bug", `updatedFrom.labelIds=["`+linearBug+`"]`),
		no("something else changed", "", "-updatedFrom.labelIds"),
		no("another label", "labels=p1"),
		no("removed from the list", "", "action=remove"),
		no("an excluded label", "labels!=Bug"),
	},
	"issue_state_changed": {
		yes("the new state", "state_ids="+linearState),
		yes("its name", "states=triage"),
		no("the state before", "state_ids=5a000000-0000-4000-8000-000000000042"),
		no("something else changed", "", "-updatedFrom.stateId"),
		no("created", "", "action=create"),
		no("another label", "labels=p1"),
	},
	"issue_assigned": {
		yes("to the person", "assignee_ids="+linearAda),
		yes("when it is created", "", "action=create", "-updatedFrom"),
		no("to somebody else", "assignee_ids="+linearGrace),
		no("to nobody", "", "data.assigneeId=null", "data.assignee=null"),
		no("something else changed", "", "-updatedFrom.assigneeId"),
		no("another project", "project_ids="+linearTeam),
	},
	"comment_created": {
		yes("in a team", "teams=Payments; team_ids="+linearTeam),
		yes("on an issue", "issues=PAY-77"),
		yes("the label that the API tells", "labels=bug", "?issue_labels=Bug"),
		yes("whom the API knows to be mentioned", "mentioned_user_ids="+linearGrace, "?comment_mentions="+linearGrace),
		yes("the state by name", "states=Triage", "?issue_state_name=triage"),
		no("the label is not known", "labels=bug"),
		no("another label", "labels=p1", "?issue_labels=Bug"),
		no("edited", "", "action=update"),
		no("on a project", "", "-data.issueId", "-data.issue"),
		no("by an integration", "", `data.botActor={"id":"b","type":"slack"}`),
		no("by an integration, as text", "", `data.botActor="{\"type\":\"slack\"}"`),
		no("by an agent of ours", "", "data.userId=triphammer"),
		no("by somebody else", "creator_ids="+linearGrace),
	},
	"agent_session_created": {
		yes("by a comment with a word", "keywords= FIX ; team_ids="+linearTeam),
		yes("by assignment", "keywords=captures", "-agentSession.comment"),
		no("prompted", "", "action=prompted"),
		no("another word", "keywords=deploy"),
		no("another team", "teams=core"),
		no("another person", "creator_ids="+linearGrace),
		no("a word of the context alone", "keywords=identifier"),
	},
}
