# shellcheck shell=bash
# Starts NATS servers for the scripts beside it, which set bin, work, port and pids.

# await waits up to 20 s for a command to succeed, while the server that was started last lives.
await() {
	local i
	for ((i = 0; i < 200; i++)); do
		if "$@" 2>/dev/null; then return 0; fi
		kill -0 "${pids[-1]}" 2>/dev/null || break
		sleep 0.1
	done
	echo "the server is not ready:" >&2
	tail -n 5 "$work"/*.log >&2
	return 1
}

# healthy asks a nats-server at its monitoring port: a cluster takes a while to agree on a leader.
healthy() {
	(
		exec 3<>"/dev/tcp/127.0.0.1/$1"
		printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3
		grep -q '"status":"ok"' <&3
	)
}

# end_servers ends what was started.
end_servers() {
	local pid
	for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${pids[@]}"; do wait "$pid" || true; done
	pids=()
}

# start_nats starts so many empty servers, a cluster if there are several, with a sync interval.
start_nats() {
	local i nodes=$1 sync=$2 routes=""
	for ((i = 0; i < nodes; i++)); do routes+="\"nats://127.0.0.1:$((port + 10 + i))\", "; done
	for ((i = 0; i < nodes; i++)); do
		{
			echo "listen: \"127.0.0.1:$((port + i))\", http: \"127.0.0.1:$((port + 5 + i))\", server_name: \"n$i\""
			echo "jetstream { store_dir: \"$work/n$i\", sync_interval: \"$sync\", max_file_store: 64G }" # Toolyard's streams ask for 32
			((nodes == 1)) || echo "cluster { name: bench, listen: \"127.0.0.1:$((port + 10 + i))\", routes: [${routes%, }] }"
		} >"$work/n$i.conf"
		"$bin/nats-server" -c "$work/n$i.conf" >"$work/n$i.log" 2>&1 &
		pids+=($!)
	done
	for ((i = 0; i < nodes; i++)); do await healthy $((port + 5 + i)); done
}
