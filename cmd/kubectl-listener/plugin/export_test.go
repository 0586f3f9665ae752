package plugin

// HasRemedy reports whether there is a remedy for a reason.
func HasRemedy(reason string) bool { return remedies()[reason] != "" }
