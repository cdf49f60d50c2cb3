// Package controllers replaces a module that the Go module proxy does not serve in the version that
// Cilium requires. Cilium uses one name of it, for services of other clusters, which no program here has.
package controllers

// DerivedServiceAnnotation is set on a ServiceImport and names its service.
const DerivedServiceAnnotation = "multicluster.kubernetes.io/derived-service"
