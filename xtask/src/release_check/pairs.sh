# RDMA programs, in pairs, on an installed Ferroce.
cd "$HOME"

# pair SERVER CLIENT: both end with 0. The client is tried until the server listens.
pair() {
	timeout 60 ferroce run -- $1 > server.log 2>&1 &
	server=$!
	tries=0
	until timeout 60 ferroce run -- $2 > client.log 2>&1; do
		tries=$((tries + 1))
		if [ $tries = 200 ] || ! kill -0 $server 2> /dev/null; then
			cat server.log client.log
			exit 1
		fi
		sleep 0.05
	done
	wait $server || { cat server.log; exit 1; }
	echo "done: $2"
}

pair 'rping -s -a 127.0.0.1 -C 100 -V' 'rping -c -a 127.0.0.1 -C 100 -V'
echo "$(cat /srv/begun) $(cut -d ' ' -f 1 /proc/uptime)" |
	awk '{ printf "%.1f\n", $2 - $1 }' > seconds
pair 'ibv_rc_pingpong -g 0' 'ibv_rc_pingpong -g 0 127.0.0.1'
pair 'ib_write_bw -n 1000' 'ib_write_bw -n 1000 127.0.0.1'
pair 'ib_send_lat -n 1000' 'ib_send_lat -n 1000 127.0.0.1'
ferroce run -- ibv_devices | grep ferroce_lo
ferroce demo > demo.log || { cat demo.log; exit 1; }
# Other programs keep the system's libraries.
if ibv_devices 2> /dev/null | grep ferroce; then
	exit 1
fi
