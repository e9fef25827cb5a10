package kubestore

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
)

// What is kept where, in one namespace. NAME is the group's id, or, if that
// cannot name an object, a hash of it.
//
//	Lease NAME                    who leads, or who led last
//	ConfigMap baton-term-NAME     the last term that was reserved; the terms before
//	ConfigMap baton-policy-NAME   what is registered
//	ConfigMap baton-floor         a term that every grant exceeds
const (
	termPrefix   = "baton-term-"
	policyPrefix = "baton-policy-"
	floorName    = "baton-floor"
)

// Labels and annotations. Others' are left alone.
const (
	partLabel        = "baton/part"
	groupAnnotation  = "baton/group"
	recordAnnotation = "baton/record"

	partLease, partTerm, partPolicy, partFloor = "lease", "term", "policy", "floor"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// hashPrefix is before names that are hashes. An id that begins so is hashed too,
// lest it be somebody else's hash.
const hashPrefix = "baton-group-"

// objectName is the name of a group's Lease.
func objectName(group string) string {
	if len(validation.IsDNS1123Subdomain(group)) == 0 && !strings.HasPrefix(group, hashPrefix) {
		return group
	}
	hash := sha256.Sum256([]byte(group))
	return hashPrefix + hex.EncodeToString(hash[:16])
}

func termName(group string) string   { return termPrefix + objectName(group) }
func policyName(group string) string { return policyPrefix + objectName(group) }

func labels(part string) map[string]string { return map[string]string{partLabel: part} }

func annotations(group string) map[string]string { return map[string]string{groupAnnotation: group} }
