package store

import "triphammer/server/store/internal/engine"

// What package engine says of the database, for those who open or read a store.
type (
	// Clock says whether the store believes the machine's clock.
	Clock = engine.Clock
	// Loss is how much acknowledged data a store lacks.
	Loss = engine.Loss
)

// Errors for errors.Is.
var (
	ErrNotFound    = engine.ErrNotFound
	ErrUnavailable = engine.ErrUnavailable
	ErrClosed      = engine.ErrClosed
	ErrFull        = engine.ErrFull
	ErrNewerSchema = engine.ErrNewerSchema
	ErrMissing     = engine.ErrMissing
	ErrForeign     = engine.ErrForeign
	ErrDamaged     = engine.ErrDamaged
	ErrCopying     = engine.ErrCopying
	ErrBackup      = engine.ErrBackup
	ErrNoRoom      = engine.ErrNoRoom
	ErrOthers      = engine.ErrOthers
)

// Functions that need no open store.
var (
	// CheckURL refuses what is no address of a PostgreSQL database.
	CheckURL = engine.CheckURL
	// NameOf is the address of a database without user, password and options.
	NameOf = engine.NameOf
	// Away tells whether a database cannot be reached now, so that trying again can help.
	Away = engine.Away
	// Unfinished is the file in which a new store is made.
	Unfinished = engine.Unfinished
	// Beside are the files that belong to a store besides the database.
	Beside = engine.Beside
)
