{{/* The name of the release's objects, and the first part of the names of those of a part. A CronJob NAME-reclaim may
have 52 characters. */}}
{{- define "delegated-ipam.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 44 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 44 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 44 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{/* The name of the objects of a part. Arguments: the chart's root, the part; empty for the daemon. */}}
{{- define "delegated-ipam.partname" -}}
{{- list (include "delegated-ipam.fullname" (index . 0)) (index . 1) | compact | join "-" -}}
{{- end }}

{{- define "delegated-ipam.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end }}

{{/* The labels that select the pods of a part. Arguments as for partname. nameOverride does not change
them: "delegated-ipam-bridge audit" finds the bridges by the first one. */}}
{{- define "delegated-ipam.selector" -}}
app.kubernetes.io/name: {{ list "delegated-ipam" (index . 1) | compact | join "-" }}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
{{- end }}

{{/* The labels of an object. Arguments as for partname, and values whose labels are its own. */}}
{{- define "delegated-ipam.labels" -}}
{{- $root := index . 0 -}}
{{ include "delegated-ipam.selector" . }}
app.kubernetes.io/component: {{ index . 1 | default "daemon" }}
app.kubernetes.io/part-of: delegated-ipam
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- with mergeOverwrite (dict) $root.Values.commonLabels (dig "labels" dict (index (append . dict) 2)) }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The metadata of an object. Arguments as for labels. */}}
{{- define "delegated-ipam.metadata" -}}
name: {{ include "delegated-ipam.partname" . }}
namespace: {{ include "delegated-ipam.namespace" (index . 0) }}
labels:
  {{- include "delegated-ipam.labels" . | nindent 2 }}
{{- end }}

{{/* The metadata of an object without a namespace. Arguments as for partname. */}}
{{- define "delegated-ipam.clusterMetadata" -}}
name: {{ include "delegated-ipam.partname" . }}
labels:
  {{- include "delegated-ipam.labels" . | nindent 2 }}
{{- end }}

{{/* The labels of a pod. Arguments as for partname. */}}
{{- define "delegated-ipam.podLabels" -}}
{{ include "delegated-ipam.selector" . }}
{{- with mergeOverwrite (dict) (index . 0).Values.commonLabels (index . 0).Values.podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The service account of a part. Arguments as for partname, and the part's values. */}}
{{- define "delegated-ipam.serviceAccountName" -}}
{{- with (index . 2).serviceAccount -}}
{{- if .name }}{{ .name }}{{ else if .create }}{{ include "delegated-ipam.partname" $ }}{{ else }}default{{ end -}}
{{- end -}}
{{- end }}

{{/* The service account of a part, if the chart creates it. Arguments as for serviceAccountName. */}}
{{- define "delegated-ipam.serviceAccount" -}}
{{- with (index . 2).serviceAccount -}}
{{- if .create }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "delegated-ipam.serviceAccountName" $ }}
  namespace: {{ include "delegated-ipam.namespace" (index $ 0) }}
  labels:
    {{- include "delegated-ipam.labels" $ | nindent 4 }}
  {{- with .annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
---
{{- end }}
{{- end }}
{{- end }}

{{/* Binds the cluster role of a part to its service account. Arguments as for serviceAccountName. */}}
{{- define "delegated-ipam.clusterRoleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  {{- include "delegated-ipam.clusterMetadata" . | nindent 2 }}
{{ include "delegated-ipam.bound" (list . "ClusterRole") }}
{{- end }}

{{/* What a binding binds. Arguments: those of serviceAccountName, the kind of the role. */}}
{{- define "delegated-ipam.bound" -}}
{{- $part := index . 0 -}}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ index . 1 }}
  name: {{ include "delegated-ipam.partname" $part }}
subjects:
  - kind: ServiceAccount
    name: {{ include "delegated-ipam.serviceAccountName" $part }}
    namespace: {{ include "delegated-ipam.namespace" (index $part 0) }}
{{- end }}

{{/* The image of a part. Arguments: the image's values, the chart's root. */}}
{{- define "delegated-ipam.image" -}}
{{- $image := index . 0 -}}
{{- list $image.registry $image.repository | compact | join "/" }}:{{ $image.tag | default (index . 1).Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end }}

{{/* An option as text: a number of a file is a float64, which would be 1e+06. */}}
{{- define "delegated-ipam.value" -}}
{{ if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The options of the daemon: those given, over those that the other values need. Owners and groups are
joined: the bridge does not work without its own. */}}
{{- define "delegated-ipam.options" -}}
{{- $needed := dict -}}
{{- $given := deepCopy .Values.daemon.options -}}
{{- if .Values.bridge.enabled -}}
{{- range $key, $value := dict "owners" "ciliumnode-*" "allow-gids" (printf "%d" (int64 .Values.group)) -}}
{{- $_ := set $given $key (list (include "delegated-ipam.value" (get $given $key)) $value | compact | join ",") -}}
{{- end -}}
{{- end -}}
{{- if .Values.network.enabled -}}
{{- $_ := set $needed "cni-conf-file" (printf "/etc/delegated-ipam/network/%s" .Values.network.fileName) -}}
{{- else if .Values.network.conflist -}}
{{- $_ := set $needed "cni-conf-file" "/etc/delegated-ipam/conflist/pods.conflist" -}}
{{- end -}}
{{- if .Values.network.singleNode -}}
{{- $_ := set $needed "single-node" "true" -}}
{{- end -}}
{{- if .Values.daemon.installCNI -}}
{{- $_ := set $needed "missing-netns-release-delay" "10m" -}}
{{- end -}}
{{- range $key, $value := merge $given $needed }}
{{ $key }}: {{ include "delegated-ipam.value" $value | quote }}
{{- end }}
{{- end }}

{{/* Not empty if the daemon looks for the network namespaces of pods. */}}
{{- define "delegated-ipam.watchesNetNS" -}}
{{- if regexMatch "[1-9]" (index (include "delegated-ipam.options" . | fromYaml) "missing-netns-release-delay" | default "0") }}true{{ end -}}
{{- end }}

{{/* The option plugin-timeout in whole seconds. Sprig computes with durations only as a distance of dates. */}}
{{- define "delegated-ipam.pluginTimeout" -}}
{{- $from := toDate "2006-01-02" "2000-01-01" -}}
{{- sub ($from | mustDateModify (index .Values.daemon.options "plugin-timeout" | default "30s") | unixEpoch) ($from | unixEpoch) -}}
{{- end }}

{{/* The template of the CNI configuration. */}}
{{- define "delegated-ipam.template" -}}
{{- .Values.network.template | default (.Files.Get "files/pods.conflist") -}}
{{- end }}

{{/* Not empty if nodes have other ranges than their podCIDRs. */}}
{{- define "delegated-ipam.sharedRange" -}}
{{- if not (and .Values.network.enabled (regexMatch "\\$\\{(ranges|podCIDRs)" (include "delegated-ipam.template" .))) }}true{{ end -}}
{{- end }}

{{/* The annotations of a pod. Arguments: the chart's root, the part's values, further annotations. */}}
{{- define "delegated-ipam.podAnnotations" -}}
{{- with mergeOverwrite (dict) (index . 0).Values.podAnnotations (index . 1).podAnnotations (index . 2) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* What places a pod on every node. Arguments: the chart's root, the part's values. */}}
{{- define "delegated-ipam.placement" -}}
hostNetwork: true
{{- with (index . 0).Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- include "delegated-ipam.schedule" (append . (index . 0).Values) }}
{{- end }}

{{/* What places a pod on one of these nodes. Arguments: the chart's root, the part's values, those with the
tolerations and affinity of a part that has none. */}}
{{- define "delegated-ipam.schedule" -}}
{{- $root := index . 0 -}}
{{- $part := index . 1 -}}
{{- $common := index . 2 -}}
{{- with concat $root.Values.imagePullSecrets $part.imagePullSecrets | uniq }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with mergeOverwrite (dict) $root.Values.nodeSelector $part.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.tolerations | default $common.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $part.affinity | default $common.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The address of the API server, if it is not the ClusterIP. */}}
{{- define "delegated-ipam.apiserver" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
{{- end }}
{{- with .Values.apiServer.port }}
- {name: KUBERNETES_SERVICE_PORT, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* What every container is denied. */}}
{{- define "delegated-ipam.denied" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: ["ALL"]}
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* The security context of a container that has files of the host. Arguments: the chart's root, the user. */}}
{{- define "delegated-ipam.onHost" -}}
runAsUser: {{ index . 1 }}
runAsGroup: {{ (index . 0).Values.group }}
{{ include "delegated-ipam.denied" . }}
{{- with (index . 0).Values.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security context of a container that only sends requests to the API server. */}}
{{- define "delegated-ipam.apiOnly" -}}
runAsNonRoot: true
runAsUser: {{ .Values.group }}
runAsGroup: {{ .Values.group }}
{{ include "delegated-ipam.denied" . }}
{{- end }}

{{/* The port of a part's metrics, which a PodMonitor names. Arguments: the chart's root, the address. */}}
{{- define "delegated-ipam.metricsPort" -}}
{{- if (index . 0).Values.podMonitor.enabled }}
ports:
  - {name: metrics, containerPort: {{ index . 1 | regexFind "[0-9]+$" }}, protocol: TCP}
{{- end }}
{{- end }}

{{/* The page of the runbooks: of the released version, or of the main branch. */}}
{{- define "delegated-ipam.runbooks" -}}
{{- $at := ternary .Chart.AppVersion "main" (hasPrefix "v" .Chart.AppVersion) -}}
{{- .Values.prometheusRule.runbookURL | default (printf "%s/blob/%s/docs/troubleshooting.md" .Chart.Home $at) -}}
{{- end }}

{{/* Not empty if admission policies are installed where they are wanted. */}}
{{- define "delegated-ipam.policies" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" }}true{{ end -}}
{{- end }}

{{/* The policy for the Events of a part. Arguments as for serviceAccountName. An update is checked as it was,
too: otherwise the Event of another object could be made one of the own Node. */}}
{{- define "delegated-ipam.eventsPolicy" -}}
{{- $name := include "delegated-ipam.partname" . -}}
# The Events of {{ $name }} are about its own node.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}-events
  labels:
    {{- include "delegated-ipam.labels" . | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
      - apiGroups: ["", "events.k8s.io"]
        apiVersions: ["*"]
        operations: ["CREATE", "UPDATE"]
        resources: ["events"]
  matchConditions:
    - name: program
      expression: >-
        request.userInfo.username.matches('^system:serviceaccount:[^:]+:{{ include "delegated-ipam.serviceAccountName" . }}$')
  validations:
    - reason: Forbidden
      expression: >-
        has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra &&
        request.namespace == 'default' &&
        (request.operation == 'UPDATE' ? [object, oldObject] : [object]).all(e,
        (has(e.involvedObject) ? e.involvedObject : e.regarding).kind == 'Node' &&
        (has(e.involvedObject) ? e.involvedObject : e.regarding).name ==
        request.userInfo.extra['authentication.kubernetes.io/node-name'][0])
      message: {{ $name }} may create Events about its own Node only
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}-events
  labels:
    {{- include "delegated-ipam.labels" . | nindent 4 }}
spec:
  policyName: {{ $name }}-events
  validationActions: ["Deny"]
{{- end }}

{{/* The arguments that both runs of lost-nodes get. */}}
{{- define "delegated-ipam.lostNodesArgs" -}}
- --namespace={{ include "delegated-ipam.namespace" . }}
- --config-map={{ include "delegated-ipam.partname" (list . "nodes") }}
{{- range $name, $value := .Values.reclaim.options }}
- {{ printf "--%s=%s" $name (include "delegated-ipam.value" $value) | quote }}
{{- end }}
{{- with .Values.reclaim.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The annotations of an object of the delete hook. Arguments: the chart's root, the weight. Rendered for
deploy/kubernetes they are left out. */}}
{{- define "delegated-ipam.deleteHook" -}}
annotations:
  helm.sh/hook: pre-delete
  helm.sh/hook-weight: {{ index . 1 | quote }}
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
