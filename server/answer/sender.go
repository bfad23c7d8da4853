// Package answer sends what became of a run back to where its event came from.
//
// The package has one row for each sender that takes answers: a [Sender] finds the [Place] of
// an answer in a delivery, renders a [Message] in the sender's markup, and signs, posts, edits
// and finds answers with the sender's API. The rows keep no state. What is to be sent, and
// whether it was sent, is in the store.
//
// A message holds text of an agent, which can say anything. A row makes it harmless in its
// own markup: it mentions nobody, triggers no command, loads no image, and no link lies about
// where it goes.
package answer

import (
	"context"
	"time"

	"triphammer/factory/native"
	"triphammer/server/lookup"
)

// Place is where an answer goes. It is kept with the answer, as JSON, and holds nothing secret. An
// event without a thread, such as a push, has no Thread; without Item, nothing gets the sign.
type Place struct {
	Provider  string `json:"provider"`
	Team      string `json:"team,omitempty"`      // the workspace, where a channel is in one
	Container string `json:"container,omitempty"` // the repository, project, site or channel
	Thread    string `json:"thread,omitempty"`    // in the container: an issue's number, a thread's timestamp, a session's id
	Kind      string `json:"kind,omitempty"`      // what the thread is, where addresses differ: issue, pull, session
	Item      string `json:"item,omitempty"`      // what the event is: the comment or message that gets the sign
	ItemKind  string `json:"itemKind,omitempty"`  // what the item is, where addresses differ
	Commit    string `json:"commit,omitempty"`    // that the event is about, for checks
	Asker     string `json:"asker,omitempty"`     // who asked in person, as the sender mentions people
	Audience  string `json:"audience,omitempty"`  // to whom the question is limited, as the sender says it
	Internal  bool   `json:"internal,omitempty"`  // the answer is not to be more visible than an internal note
	Link      string `json:"link,omitempty"`      // the page of the thread
	// Starters are those who may answer a question there, as startedBy names them; empty: whoever can write.
	Starters []string `json:"starters,omitempty"`
	// Approvers are those whose replies there decide what waits for a person; empty: nobody's do.
	Approvers []string `json:"approvers,omitempty"`
	// Buttons tells that clicks there come back, because the webhook has a connection.
	Buttons bool `json:"buttons,omitempty"`
}

// States of a Message.
const (
	Started = "started"
	Waits   = "waits" // for what Message.Why says
	Ended   = "ended"
	Said    = "said" // by the agent, which asked for it: an output, and no answer
)

// Message is what an answer says.
type Message struct {
	State      string
	Automation string
	Run        string // its id; empty: there is only a delivery
	Delivery   string // the id of the delivery, if there is no run
	Link       string // the page of the run; empty: the server has no public address
	Why        string // what the run waits for, or why it ended as it did
	Outcome    string // in words, such as "succeeded"; empty before the end
	// Text is the agent's last message, in Markdown, and says whatever the agent wants.
	Text         string
	PullRequests []string // their addresses
	Took         time.Duration
	CostUSD      float64
	Asker        string // whom the message mentions; empty: nobody
	// Code decides what of the run waits to be approved (SPEC 26.2), and Decides says whose reply with it does;
	// without these, the page of the run does. Approved says what was approved, by whom.
	Code, Decides, Approved string
	Undecided               bool // something waits to be approved
	Buttons                 bool // clicks with Code decide, too
	Mentioned               bool // a reply with Code reaches this server only if it mentions the webhook
	// Asks says how to answer a question of the agent (SPEC 26.3), which is Text; empty: it asks nothing.
	// Without Text, the question is in another text.
	Asks   string
	Marker string // tells an answer of ours from other texts; readers do not see it
}

// Posted is a text that stands at a sender.
type Posted struct {
	ID     string `json:"id"`
	Link   string `json:"link,omitempty"`
	Author string `json:"author,omitempty"` // the sender's identifier of our account, where it tells: no reply of it decides
}

// Pace is how much a sender takes: at most Writes within Per, by one credential or, if
// Place, in one container.
type Pace struct {
	Writes int
	Per    time.Duration
	Place  bool
}

// Sender is a service that takes answers.
type Sender struct {
	Provider string
	Paces    []Pace
	MaxText  int // bytes of one text
	// Place finds where an event is answered. Its error is a sentence that says why the event
	// cannot be answered.
	Place func(e *native.Event, d native.Delivery) (Place, error)
	// Text renders a message, with its marker, in at most MaxText bytes. Only Post and Edit of the
	// same row read it; Worker.Preview is for people.
	Text func(Message) string
	// Sign gives the cheap first sign. Doing it twice leaves one sign. Nil: the sender has none.
	Sign func(context.Context, *lookup.Client, lookup.API, Place) error
	// Post adds a text to a place. key is the same for each attempt, where the sender takes an id
	// of the client's.
	Post func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, text, key string) (Posted, error)
	// Edit replaces a text that was posted. Nil: the sender cannot. Linear cannot change what an agent
	// said in a session: there, each new text follows, and the same text twice is one.
	Edit func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, at Posted, text string) error
	// Find looks in a place for a text of the credential's own account that has a marker. Nil: the
	// sender cannot search, so an uncertain attempt is not repeated.
	Find func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, marker string) (at Posted, found bool, err error)
	// Check sets the state of the place's commit, or of the head of its pull request. Nil: the sender
	// has no checks.
	Check func(ctx context.Context, c *lookup.Client, api lookup.API, p Place, m Message) (Posted, error)
	// Who asks whose the credential is, and which permissions it lacks. It changes nothing.
	Who func(ctx context.Context, c *lookup.Client, api lookup.API) (Account, error)
	// Outputs do what agents ask for, by kind (SPEC 23.1). A comment that is missing is a text as Post
	// adds it.
	Outputs map[string]Perform
	// Needs is the permission that the credential needs, for the guide, doctor and errors.
	Needs string
	// Every is how often the text that a run has started is edited again while it works, because
	// the sender takes a long silence for an end; 0: never.
	Every time.Duration
}

// edits tells whether texts in a place are edited in place. In a session of Linear, each new text follows.
func (s *Sender) edits(p Place) bool { return s.Edit != nil && p.Kind != "session" }

// Senders are all senders that take answers, sorted by provider. Callers must not change them.
func Senders() []*Sender { return senders }

var senders = []*Sender{azureSender, githubSender, gitlabSender, jiraSender, linearSender, slackSender, teamsSender}

// ByProvider finds a sender; nil: it takes no answers.
func ByProvider(provider string) *Sender {
	for _, s := range senders {
		if s.Provider == provider {
			return s
		}
	}
	return nil
}
