package host

const (
	// DevFolder is where dev keeps what it has, below the folder that it serves.
	DevFolder = ".triphammer"
	// MadeFolder has the secrets that dev made up, in the data directory, a file each.
	MadeFolder = "made-secrets"
)
