package api

import (
	"net/http"

	"triphammer/schema"
)

// Code is the kind of a problem. The type of a Problem is the anchor of its code in
// /openapi.yaml.
type Code string

// The codes of all problems (SPEC 9.8).
const (
	InvalidRequest         Code = "invalid-request"
	AuthenticationRequired Code = "authentication-required"
	NotAuthorized          Code = "not-authorized"
	NotFound               Code = "resource-not-found"
	MethodNotAllowed       Code = "method-not-allowed"
	RequestTimeout         Code = "request-timeout"
	Conflict               Code = "conflict"
	RequestTooLarge        Code = "request-too-large"
	NotSupported           Code = "operation-not-supported"
	TooManyRequests        Code = "too-many-requests"
	InternalError          Code = "internal-error"
	DataDamaged            Code = "stored-data-damaged"
	Unavailable            Code = "resource-unavailable"
	IdempotencyMismatch    Code = "idempotency-key-mismatch"
	BudgetExceeded         Code = "budget-exceeded"
	InvalidDefinition      Code = "invalid-definition"
)

// kinds describes each code. The field retryable tells whether the same request may
// succeed later.
var kinds = map[Code]struct {
	status    int
	title     string
	retryable bool
}{
	InvalidRequest:         {http.StatusBadRequest, "Invalid request", false},
	AuthenticationRequired: {http.StatusUnauthorized, "Authentication required", false},
	NotAuthorized:          {http.StatusForbidden, "Not authorized", false},
	NotFound:               {http.StatusNotFound, "Not found", false},
	MethodNotAllowed:       {http.StatusMethodNotAllowed, "Method not allowed", false},
	RequestTimeout:         {http.StatusRequestTimeout, "Request timeout", true},
	Conflict:               {http.StatusConflict, "Conflict", false},
	RequestTooLarge:        {http.StatusRequestEntityTooLarge, "Request too large", false},
	NotSupported:           {http.StatusUnprocessableEntity, "Not supported", false},
	TooManyRequests:        {http.StatusTooManyRequests, "Too many requests", true},
	InternalError:          {http.StatusInternalServerError, "Internal error", true},
	DataDamaged:            {http.StatusInternalServerError, "Stored data is damaged", false},
	Unavailable:            {http.StatusServiceUnavailable, "Unavailable", true},
	BudgetExceeded:         {http.StatusTooManyRequests, "Budget exceeded", false},
	InvalidDefinition:      {http.StatusUnprocessableEntity, "Definitions are not valid", false},
	IdempotencyMismatch:    {http.StatusUnprocessableEntity, "Idempotency-Key used with another request", false},
}

// Problem is an error answer (RFC 9457, SPEC 9.8).
type Problem struct {
	Type      string         `json:"type"`
	Title     string         `json:"title"`
	Status    int            `json:"status"`
	Detail    string         `json:"detail,omitempty"`
	Error     string         `json:"error"`
	Message   string         `json:"message"`
	Retryable bool           `json:"retryable"`
	Errors    []FieldProblem `json:"errors,omitempty"`
	// Verdict belongs to InvalidDefinition. It has the keys of the answer of the validate endpoint.
	*Verdict
	// Moved belongs to Conflict. It says what others changed.
	Moved *Moved `json:"moved,omitempty"`
}

// Verdict is a schema.Answer.
type Verdict schema.Answer

// FieldProblem is a problem with one field of a request.
type FieldProblem struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// NewProblem makes a problem of a code. The detail and the fields are about the request,
// and may be empty.
func NewProblem(code Code, detail string, fields ...FieldProblem) Problem {
	kind := kinds[code]
	p := Problem{
		Type: "/openapi.yaml#" + string(code), Title: kind.title, Status: kind.status, Detail: detail,
		Error: kind.title, Message: kind.title, Retryable: kind.retryable, Errors: fields,
	}
	if detail != "" {
		p.Error, p.Message = kind.title+" ("+detail+")", detail
	}
	return p
}

// Refusal is an error that the server answers with a problem.
type Refusal struct {
	Code   Code
	Detail string
	Fields []FieldProblem

	Verdict *Verdict // see Problem
	Moved   *Moved
}

// Refuse makes a Refusal.
func Refuse(code Code, detail string, fields ...FieldProblem) error {
	return &Refusal{Code: code, Detail: detail, Fields: fields}
}

// NoneNamed says that nothing of a kind has the name. It adds the name that was likely meant, or
// the existing names.
func NoneNamed(kind, name string, names []string) string {
	text := "no " + kind + " is named " + name
	if hint := schema.OneOf(name, names); hint != "" {
		text += "; " + hint
	}
	return text
}

// Problem makes the answer.
func (r *Refusal) Problem() Problem {
	p := NewProblem(r.Code, r.Detail, r.Fields...)
	p.Verdict, p.Moved = r.Verdict, r.Moved
	return p
}

func (r *Refusal) Error() string { return r.Detail }
