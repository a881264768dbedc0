//! How a RocketMQ is configured and started: a name server, and one process that is broker and proxy.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use rustix::fs::statvfs;
use serde_json::{Map, Value, json};

use super::catalog::{ROCKETMQ_ACCOUNT, RocketmqPorts, Service};
use super::maven;
use super::program::Program;
use super::site::Site;

/// The topics that are there from the start, by name and type of messages.
pub const TOPICS: [(&str, &str); 4] =
    [("t_normal", "NORMAL"), ("t_fifo", "FIFO"), ("t_delay", "DELAY"), ("t_txn", "TRANSACTION")];
/// The consumer groups that are there from the start, and whether each consumes in order.
const GROUPS: [(&str, bool); 4] =
    [("g_normal", false), ("g_fifo", true), ("g_delay", false), ("g_txn", false)];

/// What both processes run with. The broker reaches into the platform's buffers.
const JAVA_OPTIONS: &[&str] = &[
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "--add-opens=java.base/java.nio=ALL-UNNAMED",
    "--add-opens=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/sun.nio.ch=ALL-UNNAMED",
    "--add-exports=java.base/jdk.internal.ref=ALL-UNNAMED",
    "--add-opens=java.base/java.lang=ALL-UNNAMED",
    "--add-opens=java.base/java.util=ALL-UNNAMED",
];

/// A broker of 5.5.0 takes no message while more than this part of its disk is used, whatever it is configured with
/// (`getDiskSpaceWarningLevelRatio` of `DefaultMessageStore`): tests would fail one by one, each in its own words.
const FULL_PERCENT: u64 = 90;

/// Fails when the disk of the data folder is so full that the broker would refuse every message.
pub fn ensure_room(site: &Site) -> Result<()> {
    let disk = statvfs(&site.folder).with_context(|| format!("no answer about {}", site.folder.display()))?;
    let used = disk.f_blocks.saturating_sub(disk.f_bfree);
    let percent = used_percent(used, disk.f_bavail);
    ensure!(
        percent < FULL_PERCENT,
        "the disk of {} is {percent} % full, and RocketMQ refuses every message above {FULL_PERCENT} %: make room there, or \
         name a folder on another disk in CONSIGN_SERVICES_DIR",
        site.folder.display()
    );
    Ok(())
}

/// As the broker counts: what only root may use is no room, and a part of a percent is a whole one.
fn used_percent(used: u64, available: u64) -> u64 {
    (used * 100).div_ceil((used + available).max(1))
}

/// Writes the configuration before every start, because ports may have changed; topics and groups only once.
pub fn configure(site: &Site, service: Service) -> Result<()> {
    let data = site.data(service);
    let ports = service.rocketmq_ports(site.port_base).context("not a RocketMQ")?;
    fs::create_dir_all(data.join("conf"))?;
    let name_server = format!("bindAddress=127.0.0.1\nlistenPort={}\n", ports.name_server);
    fs::write(data.join("namesrv.conf"), name_server)?;
    fs::write(data.join("broker.conf"), broker(service, ports, &data))?;
    let proxy = proxy(site, service, ports);
    fs::write(data.join("proxy.json"), format!("{proxy:#}\n"))?;
    let store = data.join("store/config");
    if !store.join("topics.json").exists() {
        fs::create_dir_all(&store)?;
        fs::write(store.join("topics.json"), topics().to_string())?;
        fs::write(store.join("subscriptionGroup.json"), groups().to_string())?;
    }
    Ok(())
}

/// Both processes in one group; its leader becomes the broker, so that its end is noticed.
pub fn server(site: &Site, service: Service, program: &Program) -> Result<Command> {
    let data = site.data(service);
    let ports = service.rocketmq_ports(site.port_base).context("not a RocketMQ")?;
    let java = maven::java()?.display().to_string();
    let options = JAVA_OPTIONS.join(" ");
    let folder = data.display();
    // Logs go to the home folder of each.
    let name_server = format!(
        "{java} -Xmx128m {options} -Duser.home={folder}/name-server \
         org.apache.rocketmq.namesrv.NamesrvStartup -c {folder}/namesrv.conf"
    );
    // The disk of a machine that builds is fuller than the one of a broker. More than these the broker does not let itself be told.
    let broker = format!(
        "{java} -Xmx512m -XX:MaxDirectMemorySize=512m {options} -Duser.home={folder}/broker \
         -Drocketmq.broker.diskSpaceWarningLevelRatio=0.90 -Drocketmq.broker.diskSpaceCleanForciblyRatio=0.85 \
         org.apache.rocketmq.proxy.ProxyStartup -n 127.0.0.1:{} -pm local -bc {folder}/broker.conf \
         -pc {folder}/proxy.json",
        ports.name_server
    );
    let mut command = site.command("/bin/sh", service);
    command.arg("-c").arg(format!("{name_server} & exec {broker}"));
    command.env("CLASSPATH", maven::class_path(&program.folder)?);
    command.env("ROCKETMQ_HOME", &data).env("RMQ_PROXY_HOME", &data);
    Ok(command)
}

/// Puts the one thread behind all others that never rests once a transaction has ended (`TransactionalOpBatchService` of
/// 5.5.0: its next turn is always in the past), so that it does not take a core from the tests.
pub fn calm(broker: i32) -> Result<()> {
    // The kernel keeps fifteen characters of a thread's name.
    const SPINNING: &str = "TransactionalOp";
    for thread in fs::read_dir(format!("/proc/{broker}/task"))? {
        let thread = thread?;
        // A thread may end meanwhile.
        let name = fs::read_to_string(thread.path().join("comm")).unwrap_or_default();
        if name.trim_end() == SPINNING {
            let reniced = Command::new("renice").args(["-n", "19", "-p"]).arg(thread.file_name()).output()?;
            ensure!(reniced.status.success(), "renice: {}", String::from_utf8_lossy(&reniced.stderr));
        }
    }
    Ok(())
}

fn broker(service: Service, ports: RocketmqPorts, data: &Path) -> String {
    let safety = match service {
        // Alone, SYNC_MASTER waits for nobody: since 5.0 the broker counts itself among the replicas in sync.
        Service::Rocketmqsync => {
            "brokerRole=SYNC_MASTER\nflushDiskType=ASYNC_FLUSH\ninSyncReplicas=2\nslaveTimeout=100\n"
        }
        Service::Rocketmqflush => "brokerRole=ASYNC_MASTER\nflushDiskType=SYNC_FLUSH\nsyncFlushTimeout=0\n",
        _ => "brokerRole=ASYNC_MASTER\nflushDiskType=ASYNC_FLUSH\n",
    };
    let accounts = accounts(service, data).iter().fold(String::new(), |lines, (key, value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        lines + &format!("{key}={value}\n")
    });
    // Files are small, so that a start maps and a recovery reads little. Transactions are checked every second, so
    // that tests see a check soon. Without the merge buffer, consumers that die lose messages; `doctor` says so.
    format!(
        "brokerClusterName=DefaultCluster\n\
         brokerName=broker-a\n\
         brokerId=0\n\
         brokerIP1=127.0.0.1\n\
         bindAddress=127.0.0.1\n\
         listenPort={port}\n\
         namesrvAddr=127.0.0.1:{name_server}\n\
         storePathRootDir={folder}/store\n\
         autoCreateTopicEnable=false\n\
         autoCreateSubscriptionGroup=true\n\
         {safety}\
         mappedFileSizeCommitLog=16777216\n\
         mappedFileSizeConsumeQueue=600000\n\
         maxHashSlotNum=10000\n\
         maxIndexNum=40000\n\
         mappedFileSizeTimerLog=1048576\n\
         diskMaxUsedSpaceRatio=95\n\
         cleanFileForciblyEnable=false\n\
         fileReservedTime=12\n\
         transactionTimeOut=1000\n\
         transactionCheckInterval=1000\n\
         transactionCheckMax=5\n\
         transactionOpBatchInterval=200\n\
         timerWheelEnable=true\n\
         timerPrecisionMs=100\n\
         sendMessageThreadPoolNums=2\n\
         registerNameServerPeriod=10000\n\
         enableControllerMode=false\n\
         enablePopBufferMerge=true\n\
         {accounts}",
        port = ports.broker,
        name_server = ports.name_server,
        folder = data.display(),
    )
}

fn proxy(site: &Site, service: Service, ports: RocketmqPorts) -> Value {
    let (port, data) = (service.port(site.port_base), &site.data(service));
    let mut settings = json!({
        "rocketMQClusterName": "DefaultCluster",
        "proxyMode": "LOCAL",
        "namesrvAddr": format!("127.0.0.1:{}", ports.name_server),
        "grpcServerPort": port,
        "remotingListenPort": ports.proxy_remoting,
        "localServeAddr": "127.0.0.1",
        "tlsTestModeEnable": true,
        "grpcShutdownTimeSeconds": 1,
        "useEndpointPortFromRequest": true,
        "enableTopicMessageTypeCheck": true,
        "minInvisibleTimeMillsForRecv": 1000,
        "transactionDataExpireMillis": 30000,
        "topicRouteServiceCacheRefreshSeconds": 2,
        "metadataThreadPoolNums": 1,
        "transactionHeartbeatPeriodSecond": 2,
    });
    if service.tls_port(0).is_some() {
        let certificates = site.certificates(service);
        settings["tlsTestModeEnable"] = json!(false);
        settings["tlsKeyPath"] = json!(certificates.join("server.key"));
        settings["tlsCertPath"] = json!(certificates.join("server.pem"));
    }
    for (key, value) in accounts(service, data) {
        settings[key] = value;
    }
    settings
}

/// What makes callers sign in, the same for broker and proxy; nothing for most services. Whoever signs in may do everything.
fn accounts(service: Service, data: &Path) -> Vec<(&'static str, Value)> {
    const PROVIDERS: &str = "org.apache.rocketmq.auth.authentication.provider";
    if service != Service::Rocketmqflush {
        return Vec::new();
    }
    let (user, secret) = ROCKETMQ_ACCOUNT;
    let provider = |name: &str| json!(format!("{PROVIDERS}.{name}"));
    vec![
        ("authenticationEnabled", json!(true)),
        ("authenticationProvider", provider("DefaultAuthenticationProvider")),
        ("authenticationMetadataProvider", provider("LocalAuthenticationMetadataProvider")),
        // A text that holds an object, for both. The account is made at the start.
        ("initAuthenticationUser", json!(json!({ "username": user, "password": secret }).to_string())),
        (
            "innerClientAuthenticationCredentials",
            json!(json!({ "accessKey": user, "secretKey": secret }).to_string()),
        ),
        // The broker keeps accounts there, whatever it is told; the proxy beside it opens the same store.
        ("authConfigPath", json!(data.join("store/config"))),
    ]
}

/// The file that a broker keeps its topics in: written beforehand, they cost no call of an administration tool.
fn topics() -> Value {
    let table: Map<_, _> = TOPICS
        .iter()
        .map(|&(name, kind)| {
            let topic = json!({
                "topicName": name, "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": 0, "order": kind == "FIFO", "attributes": { "message.type": kind },
            });
            (name.to_owned(), topic)
        })
        .collect();
    json!({ "dataVersion": first_version(), "topicConfigTable": table })
}

fn groups() -> Value {
    let table: Map<_, _> = GROUPS
        .iter()
        .map(|&(name, in_order)| {
            let group = json!({
                "groupName": name, "consumeEnable": true, "consumeFromMinEnable": true, "consumeBroadcastEnable": true,
                "consumeMessageOrderly": in_order, "retryQueueNums": 1, "retryMaxTimes": 16, "brokerId": 0,
                "groupRetryPolicy": { "type": "CUSTOMIZED" }, "groupSysFlag": 0, "consumeTimeoutMinute": 15,
                "whichBrokerWhenConsumeSlowly": 1, "notifyConsumerIdsChangedEnable": true, "attributes": {},
            });
            (name.to_owned(), group)
        })
        .collect();
    json!({ "dataVersion": first_version(), "forbiddenTable": {}, "subscriptionGroupTable": table })
}

fn first_version() -> Value {
    json!({ "counter": 1, "stateVersion": 0, "timestamp": 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_percent_counts_as_a_whole_one() {
        assert_eq!(used_percent(0, 10), 0);
        assert_eq!(used_percent(900, 100), 90);
        assert_eq!(used_percent(9001, 999), 91);
        assert_eq!(used_percent(0, 0), 0);
    }
}
