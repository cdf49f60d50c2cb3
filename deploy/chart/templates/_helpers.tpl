{{/* The labels of an object. Argument: its name. */}}
{{- define "delegated-ipam.labels" -}}
app.kubernetes.io/name: {{ . }}
{{- end }}

{{/* The image of a part. Arguments: the image's values, the chart's root. */}}
{{- define "delegated-ipam.image" -}}
{{- $image := index . 0 -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 1).Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* An option as text: a number of a file is a float64, which would be 1e+06. */}}
{{- define "delegated-ipam.value" -}}
{{ if kindIs "float64" . }}{{ int64 . }}{{ else }}{{ . }}{{ end }}
{{- end }}

{{/* The options of the sidecar: those given, over those that the other values need. Owners and groups are
joined: the bridge does not work without its own. */}}
{{- define "delegated-ipam.options" -}}
{{- $needed := dict -}}
{{- $given := deepCopy .Values.sidecar.options -}}
{{- if .Values.bridge.enabled -}}
{{- range $key, $value := dict "owners" "ciliumnode-*" "allow-gids" (printf "%d" (int64 .Values.group)) -}}
{{- $_ := set $given $key (list (include "delegated-ipam.value" (get $given $key)) $value | compact | join ",") -}}
{{- end -}}
{{- end -}}
{{- if .Values.network.enabled -}}
{{- $_ := set $needed "cni-conf-file" "/etc/delegated-ipam/network/pods.conflist" -}}
{{- else if .Values.network.conflist -}}
{{- $_ := set $needed "cni-conf-file" "/etc/delegated-ipam/conflist/pods.conflist" -}}
{{- end -}}
{{- if .Values.network.singleNode -}}
{{- $_ := set $needed "single-node" "true" -}}
{{- end -}}
{{- range $key, $value := merge $given $needed }}
{{ $key }}: {{ include "delegated-ipam.value" $value | quote }}
{{- end }}
{{- end }}

{{/* The template of the CNI configuration. */}}
{{- define "delegated-ipam.template" -}}
{{- .Values.network.template | default (.Files.Get "files/pods.conflist") -}}
{{- end }}

{{/* What places a pod on every node. */}}
{{- define "delegated-ipam.placement" -}}
hostNetwork: true
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
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
{{- with .Values.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Not empty if admission policies are installed where they are wanted. */}}
{{- define "delegated-ipam.policies" -}}
{{- if and (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy") (not .Values.uninstall) }}true{{ end -}}
{{- end }}

{{/* The policy for the Events of a program. Argument: its name. An update is checked as it was, too:
otherwise the Event of another object could be made one of the own Node. */}}
{{- define "delegated-ipam.events-policy" }}
# The Events of {{ . }} are about its own node.
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ . }}-events
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
        request.userInfo.username.matches('^system:serviceaccount:[^:]+:{{ . }}$')
  validations:
    - reason: Forbidden
      expression: >-
        has(request.userInfo.extra) && 'authentication.kubernetes.io/node-name' in request.userInfo.extra &&
        request.namespace == 'default' &&
        (request.operation == 'UPDATE' ? [object, oldObject] : [object]).all(e,
        (has(e.involvedObject) ? e.involvedObject : e.regarding).kind == 'Node' &&
        (has(e.involvedObject) ? e.involvedObject : e.regarding).name ==
        request.userInfo.extra['authentication.kubernetes.io/node-name'][0])
      message: {{ . }} may create Events about its own Node only
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ . }}-events
spec:
  policyName: {{ . }}-events
  validationActions: ["Deny"]
{{- end }}
