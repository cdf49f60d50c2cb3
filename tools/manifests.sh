#!/usr/bin/env bash
# Renders deploy/kubernetes/base, the alerts of deploy/prometheus and the dashboard of deploy/grafana from
# the chart of deploy/chart, which is their one source. Only the kustomizations are written by hand:
# kustomize makes the ConfigMaps.
#
# Usage: manifests.sh HELM
set -euo pipefail
helm=$(realpath "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
chart=deploy/chart out=deploy/kubernetes/base
kubernetes=$(awk '$1 == "kubernetes" { print $2 }' test/versions/versions.txt)

# Without the labels and hooks of Helm, and without versions, which the pinned images have.
render() { # FILE TEMPLATE [FLAGS]
  local file=$1 template=templates/$2
  shift 2
  {
    echo "# Rendered from $chart/$template by 'make manifests'. Do not edit."
    "$helm" template delegated-ipam "$chart" --namespace kube-system --kube-version "$kubernetes" \
      --api-versions admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy \
      --set createConfigMaps=false --show-only "$template" "$@" |
      sed -e '1{/^---$/d}' -e '/^# Source: /d' -e '/^ *helm\.sh\/chart: /d' -e '/^ *app\.kubernetes\.io\/\(managed-by\|version\): /d' \
        -e '/^  annotations:$/{N;/helm\.sh\/hook/{N;N;d}}' -e 's/[[:space:]]*$//'
  } >"$file.new"
  mv "$file.new" "$file"
}

render $out/daemon/daemonset.yaml daemonset.yaml
render $out/network/daemonset.yaml network-daemonset.yaml
render $out/network/rbac.yaml network-rbac.yaml
render $out/network/admission-policy.yaml network-admission-policy.yaml
render $out/bridge/daemonset.yaml bridge-daemonset.yaml
render $out/bridge/rbac.yaml bridge-rbac.yaml
render $out/bridge/admission-policy.yaml bridge-admission-policy.yaml
render $out/audit/audit.yaml audit.yaml --set audit.enabled=true
render $out/reclaim-job/reclaim.yaml reclaim.yaml --set reclaim.enabled=true
render $out/uninstall/daemonset.yaml uninstall-daemonset.yaml
cp $chart/files/pods.conflist $out/network/pods.conflist
cp $chart/files/dashboard.json deploy/grafana/delegated-ipam.json

alerts=deploy/prometheus/alerts.yaml
render $alerts prometheus-rule.yaml --set prometheusRule.enabled=true
# A plain rule file is the spec of the PrometheusRule.
sed -i -e '1s,templates/prometheus-rule.yaml,files/alerts.yaml,' -e '/^apiVersion:/,/^spec:/d' -e 's/^  //' $alerts
