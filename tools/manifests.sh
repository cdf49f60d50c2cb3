#!/usr/bin/env bash
# Renders the manifests of deploy/kubernetes and the alerts of deploy/prometheus from the chart of
# deploy/chart, which is their one source. The kustomizations beside them are written by hand: kustomize makes the ConfigMaps.
#
# Usage: manifests.sh HELM
set -euo pipefail
helm=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chart=deploy/chart out=deploy/kubernetes

render() { # FILE TEMPLATE [FLAGS]
  local file=$out/$1 template=templates/$2
  shift 2
  mkdir -p "$(dirname "$file")"
  {
    echo "# Rendered from deploy/$(basename "$chart")/$template by 'make manifests'. Do not edit."
    "$helm" template delegated-ipam "$chart" --namespace kube-system --kube-version v1.35.0 \
      --api-versions admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy \
      --set createConfigMaps=false --show-only "$template" "$@" | sed -e '1{/^---$/d}' -e '/^# Source: /d' -e 's/[[:space:]]*$//'
  } >"$file.new"
  mv "$file.new" "$file"
}

render sidecar/daemonset.yaml sidecar-daemonset.yaml
render network/daemonset.yaml network-daemonset.yaml
render network/rbac.yaml network-rbac.yaml
render network/admission-policy.yaml network-admission-policy.yaml
render bridge/daemonset.yaml bridge-daemonset.yaml
render bridge/rbac.yaml bridge-rbac.yaml
render bridge/admission-policy.yaml bridge-admission-policy.yaml
render audit/audit.yaml audit.yaml --set audit.enabled=true
render uninstall/daemonset.yaml uninstall.yaml --set uninstall=true
render ../prometheus/alerts.yaml prometheus-rule.yaml --set prometheusRule.enabled=true
# A plain rule file is the spec of the PrometheusRule.
sed -i -e '1s,templates/prometheus-rule.yaml,files/alerts.yaml,' -e '/^apiVersion:/,/^spec:/d' -e 's/^  //' "$out/../prometheus/alerts.yaml"
cp "$chart/files/pods.conflist" "$out/network/pods.conflist"
