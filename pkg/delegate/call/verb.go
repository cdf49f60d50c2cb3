package call

// The verbs of a plugin call, as CNI_COMMAND and Error.Verb name them (CNI spec
// 1.1.0, section 2).
const (
	VerbAdd     = "ADD"
	VerbDel     = "DEL"
	VerbCheck   = "CHECK"
	VerbStatus  = "STATUS"
	VerbVersion = "VERSION"
)
