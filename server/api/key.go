package api

import "time"

// Key is an entry of GET /api/v1/keys.
type Key struct {
	ID         string     `json:"id"`
	Name       string     `json:"name"`
	Kind       string     `json:"kind"` // personal, agent
	Owner      string     `json:"owner"`
	Scopes     []string   `json:"scopes"`
	Factory    string     `json:"factory,omitempty"`
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at,omitempty"`
	RevokedAt  *time.Time `json:"revoked_at,omitempty"`
	LastUsedAt *time.Time `json:"last_used_at,omitempty"`
	Key        string     `json:"key,omitempty"`   // only in the answer that creates the key
	Ended      *Ended     `json:"ended,omitempty"` // only in the answer that revokes the key
}

// Caller is GET /api/v1/caller: the caller of the request, with its rights.
type Caller struct {
	Name      string     `json:"name"`
	Kind      string     `json:"kind"`              // personal, agent, local
	Scopes    []string   `json:"scopes"`            // including implied scopes
	Factory   string     `json:"factory,omitempty"` // the only factory that the caller may use; missing: all
	ExpiresAt *time.Time `json:"expires_at,omitempty"`
}

// Ended counts what ended with a key. It is also the answer to DELETE
// /api/v1/auth/sessions.
type Ended struct {
	Sessions   int64 `json:"sessions"`
	LoginLinks int64 `json:"login_links"`
	Schedules  int64 `json:"schedules"` // paused schedules
}

// CreateKey is the body of POST /api/v1/keys.
type CreateKey struct {
	Name           string   `json:"name"`
	Agent          string   `json:"agent,omitempty"`
	Owner          string   `json:"owner,omitempty"`
	Scopes         []string `json:"scopes,omitempty"`
	Factory        string   `json:"factory,omitempty"`
	ExpiresSeconds int64    `json:"expires_seconds,omitempty"`
}

// CreateLoginLink is the body of POST /api/v1/auth/links. It may be missing.
type CreateLoginLink struct {
	Name string `json:"name,omitempty"` // the person who signs in with the link; missing: the caller
	Role string `json:"role,omitempty"` // viewer, operator, manager; missing: the caller's role
	To   string `json:"to,omitempty"`   // path of the page to open; missing: the first page
}

// LoginLink is the answer to POST /api/v1/auth/links.
type LoginLink struct {
	URL       string    `json:"url"`
	Name      string    `json:"name"`
	Role      string    `json:"role"`
	ExpiresAt time.Time `json:"expires_at"`
}

// Session is an entry of GET /api/v1/auth/sessions.
type Session struct {
	ID          string    `json:"id"`
	Name        string    `json:"name"`
	Role        string    `json:"role"` // viewer, operator, manager
	Via         string    `json:"via"`  // how the person signed in
	CreatedAt   time.Time `json:"created_at"`
	SeenAt      time.Time `json:"seen_at"`      // the latest visit, within a minute
	ExpiresAt   time.Time `json:"expires_at"`   // latest end
	IdleSeconds int64     `json:"idle_seconds"` // how long the session lasts without a visit
	From        string    `json:"from"`
	Browser     string    `json:"browser"`
}

// AuditEntry is an entry of GET /api/v1/audit.
type AuditEntry struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Actor   string    `json:"actor"`
	Action  string    `json:"action"`
	Object  string    `json:"object"`
	Factory string    `json:"factory,omitempty"`
	Details string    `json:"details,omitempty"`
	From    string    `json:"from"`
}
