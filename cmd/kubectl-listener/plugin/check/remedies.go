package check

import "github.com/listener-operator/listener-operator/api/reasons"

// Remedies that are no matter of a reason.
const (
	RemedyOperator = "The operator does this within a moment. If it does not, an administrator finds out why: kubectl listener doctor"
	RemedyTemplate = reasons.Template
)
