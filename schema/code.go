package schema

// Code is a diagnostic code, explained.
type Code struct {
	ID   string
	What string // what is wrong, in general
	Fix  string // what to do about it
}

// Codes are all the codes that a Diagnostic can have: the format's own
// (docs/diagnostics.md) and then ours, for limits, extensions and
// state (SPEC 3.2).
var Codes = []Code{
	{MissingFactory, "The folder has no factory.yaml.", "Name the folder that holds factory.yaml, or write one: `schemaVersion: v1alpha1` and a `name` are enough."},
	{UnsupportedVersion, "`schemaVersion` is not one that this version reads; nothing else was checked.", "Write `schemaVersion: v1alpha1`."},
	{UnsupportedPath, "The file looks like a definition, and is where none of its kind can be.", "Move it to the path in the message; the path is the definition's name."},
	{DuplicatePath, "Two files define the same thing, such as an automation in its flat and in its folder form.", "Delete one of them."},
	{InvalidDocument, "The file is empty, or its root is not a mapping (of filter tests: not a list).", "Write `key: value` lines at the left margin."},
	{MalformedFrontmatter, "A Markdown definition does not begin with `---`, YAML, `---`.", "Put a line `---` first in the file, and another after the YAML."},
	{InvalidYAML, "The file is not YAML, or has a value that is never valid, such as a number that is not finite.", "Correct what the message points at; a text with `: ` or ` #` in it, or one that begins with a special character, needs quotes."},
	{DuplicateKey, "A key stands twice in one mapping, a name twice in one list, or a second agent is the foreman.", "Keep one of them."},
	{Anchor, "YAML anchors (`&name`) are not allowed.", "Write the value out at each place."},
	{Alias, "YAML aliases (`*name`) and merge keys (`<<`) are not allowed.", "Write the value out at each place."},
	{Tag, "Explicit YAML tags (`!!str`, `!name`) are not allowed.", "Remove the tag; quote a value that must be a string."},
	{UnknownField, "There is no such key here.", "Correct its spelling, or remove it; keys are case-sensitive."},
	{MissingRequired, "A key that must be there is absent or has no value.", "Add it, with a value."},
	{TypeMismatch, "The value is of another type than the key takes.", "Write the type that the message names; numbers, dates and booleans that are meant as text need quotes."},
	{InvalidValue, "The value is of the right type and outside what the key takes, or two keys exclude each other.", "Choose a value that the message allows, or remove one of the keys."},
	{InvalidReference, "The value names something that does not exist, such as an agent or one of the fixed words.", "Name one that exists; the hint has the nearest."},
	{InvalidMCP, "An entry of `mcpServers` is not `NAME: {warpId: ID}`, nor one of this server's: `{command: PROGRAM, args: […], env: {…}}` or `{url: URL, headers: {…}}`.", "Give one of `warpId`, `command` and `url`, and only the keys that go with it."},
	{InvalidTrigger, "A trigger's parts do not go together, such as a schedule on a trigger of another provider.", "Remove the part that the message names, or add the missing one."},
	{InvalidEvent, "The provider has no such event, or there is no such provider.", "Use one of the events in the hint."},
	{InvalidFilter, "A filter has a key that the event does not know, or a value that the key does not take.", "Use the keys of the event; the rules of a payload filter are in filters.md."},
	{TooLarge, "A file, or all of them together, are larger than what is read.", "Make the file smaller: 256 KiB for one, 16 MiB for all."},
	{TooDeep, "Values are nested too deep, or are too many.", "Flatten the structure."},
	{NotRegular, "A symbolic link, submodule or folder stands in a definition's place.", "Put a regular file there; links are not followed."},
	{TooMany, "There are too many of something: files, webhooks, keys, or findings.", "Remove some; of findings, correct those that are shown first."},
	{UnknownTarget, "A name has nothing behind it, in a place where that is no error: the trigger fires nothing, or a run that needs it fails.", "Correct the name, or add the definition."},
	{StrayFile, "A file that looks like a definition and is not read as one.", "Rename it as the hint says, move it, or leave it: it has no effect."},
	{NoEffect, "This server checks the key, file or trigger and does not act on it: the message says what happens instead. [reference.md](reference.md) marks all of them.", "Nothing, if another server reads the same files; else remove it. It changes no verdict."},
	{
		NoSender, "A trigger names an event of a sender, and no webhook of the factory takes that sender's deliveries, so that the trigger fires nothing.",
		"Add the webhook file that the hint names, and give its URL to the sender.",
	},
	{
		AnybodyStarts, "On a public repository, anybody can start the runs of an automation: with a comment, an issue, a review or a pull request from a fork.",
		"Say who may: `startedBy: [write]` in the automation's file. A login that reads like a role, such as `Write`, has this warning too, because roles have small letters. The rules are in definitions.md.",
	},
	{
		HeldPush, "An automation speaks of a push, and does not say to which branches its runs may push. The server refuses pushes to other branches than `triphammer/*` and that of the event's pull request.",
		"Name such a branch in the prompt, or say in the automation's file which branches they may be: `push: {branches: [fix-*]}`. The rules are in definitions.md.",
	},
	{NotHere, "What the definition asks for cannot act on this server as it is set up: the message says what happens instead. It is found at apply, by `plan` and by `validate --server`, and `automations list` and `doctor` show it as long as it holds. While no server runs, nothing is said of what depends on one.", "Set the server up for it, as the message says, or change the definition. It changes no verdict."},
	{Deprecated, "A key or a value has another name now.", "Write the new name; the old one is still read."},
	{LikelyScheme, "How this sender signs is known from one implementation alone, or disputed in a detail: its deliveries may be refused.", "Make the sender send a test delivery, and look at it with `triphammer deliveries list`."},
	{OddSchedule, "The schedule is one that nobody means: it never fires, or every second.", "Correct the expression; an interval is such as `@every 90m`."},
	{
		MissingSecret, "A webhook's `secretName` names no managed secret of the server. Of a disabled webhook, this is a warning.",
		"Set it: `triphammer secrets set NAME`; the apply is tried again by itself.",
	},
	{BadSecret, "The secret cannot serve this webhook, such as one with `/` in it for `url_token`.", "Set another value, of the form that the message names."},
	{UnverifiedCommit, "No key that the server allows has signed the commit.", "Sign it (`git commit -S`) with a key in the file that `--verify-keys` names, and push again."},
	{ExpiredSigner, "An expired ssh key signed the commit, whose date is earlier than the end of the key. Anybody who has the key can write that date.", "Remove the key from the file that `--verify-keys` names, or judge commits by the time of their arrival: `--verify-time arrived`."},
}
