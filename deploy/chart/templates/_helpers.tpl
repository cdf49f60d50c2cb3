{{/* The labels of an object. Argument: its name. */}}
{{- define "labels" -}}
app.kubernetes.io/name: {{ . }}
{{- end }}

{{/* The image of a part. Arguments: the image's values, the chart's root. */}}
{{- define "image" -}}
{{- $image := index . 0 -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default (index . 1).Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The options of the sidecar: those given, over those that the other values need. */}}
{{- define "options" -}}
{{- $needed := dict -}}
{{- if .Values.bridge.enabled -}}
{{- $_ := set $needed "owners" "ciliumnode-*" -}}
{{- $_ := set $needed "allow-gids" (printf "%d" (int64 .Values.group)) -}}
{{- end -}}
{{- if .Values.network.enabled -}}
{{- $_ := set $needed "cni-conf-file" "/etc/delegated-ipam/network/pods.conflist" -}}
{{- else if .Values.network.conflist -}}
{{- $_ := set $needed "cni-conf-file" "/etc/delegated-ipam/conflist/pods.conflist" -}}
{{- end -}}
{{- if .Values.network.singleNode -}}
{{- $_ := set $needed "single-node" "true" -}}
{{- end -}}
{{- range $key, $value := merge (deepCopy .Values.sidecar.options) $needed }}
{{ $key }}: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The template of the CNI configuration. */}}
{{- define "template" -}}
{{- .Values.network.template | default (.Files.Get "files/pods.conflist") -}}
{{- end }}

{{/* What places a pod on every node. */}}
{{- define "placement" -}}
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
{{- define "apiserver" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
{{- end }}
{{- with .Values.apiServer.port }}
- {name: KUBERNETES_SERVICE_PORT, value: {{ . | quote }}}
{{- end }}
{{- end }}

{{/* What every container is denied. */}}
{{- define "denied" -}}
readOnlyRootFilesystem: true
allowPrivilegeEscalation: false
capabilities: {drop: ["ALL"]}
seccompProfile: {type: RuntimeDefault}
{{- with .Values.seLinuxOptions }}
seLinuxOptions:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
