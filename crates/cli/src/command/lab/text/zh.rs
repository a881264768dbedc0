//! Chinese.

use super::{Story, Words};
use crate::command::lab::record::{Actor, What};
use crate::command::lab::scenario::Window;

pub const WORDS: Words = Words {
    code: "zh-CN",
    heading: "consign 实验室",
    introduction: "在提交、消息与业务效果之间的每一个窗口，都被有意打开：先按常见写法运行，再用 consign 运行。两侧都是会真正死掉的进程，\
                   结束后用同样的问题查询。",
    passed: "通过：每个常见写法都暴露了缺陷，consign 一侧没有任何缺陷",
    failed: "未通过：某个常见写法没有暴露缺陷，或 consign 一侧有缺陷",
    scenario: "场景",
    window: "窗口",
    backend: "后端",
    naive: "常见写法",
    consign: "使用 consign",
    lost: "丢失",
    doubled: "重复",
    wrong: "错误",
    order: "订单",
    orders: "订单",
    left_out: "个步骤省略",
    counted: "数字来自每一侧运行后对业务表和队列的查询；图中是那一次运行的真实步骤。",
};

pub const fn actor(actor: Actor) -> &'static str {
    match actor {
        Actor::Shop => "下单服务",
        Actor::Relay => "relay",
        Actor::OtherRelay => "relay 2",
        Actor::Consumer => "消费者",
        Actor::OtherConsumer => "消费者 2",
        Actor::Operator => "外部",
    }
}

pub const fn what(what: What) -> &'static str {
    match what {
        What::Started => "重新启动",
        What::Died => "进程死亡",
        What::OrderCommitted => "提交订单",
        What::EventCommitted => "在同一事务中提交订单和事件",
        What::NotYetCommitted => "尚未提交",
        What::SentBlindly => "发出消息，不等待任何回答",
        What::Confirmed => "消息已入队，中间件已确认",
        What::ConfirmedUnroutable => "中间件确认了一条没有进入任何队列的消息",
        What::Unroutable => "消息被退回：没有可去的队列",
        What::Unknown => "无人知道 中间件是否收到",
        What::Refused => "消息未被接收",
        What::TimedOut => "等待回答超时",
        What::Selected => "读取待发送的行",
        What::Claimed => "以租约认领该行",
        What::MarkedSent => "行变为 SENT",
        What::MarkedNew => "行又变回 NEW",
        What::Fenced => "迟到的结算被 fence：租约已易主",
        What::Paused => "停顿超过租约时间",
        What::Resumed => "恢复运行",
        What::Delivered => "收到消息",
        What::NoMarkerSeen => "查询后认为尚未处理",
        What::MarkerStored => "单独写入标记",
        What::EffectCommitted => "提交业务效果",
        What::EffectOpen => "已写入标记和效果，尚未提交",
        What::TakenForRepeat => "当作重复消息",
        What::ConflictRecorded => "记录冲突：同一键，内容不同",
        What::Stale => "旧版本，不做改动",
        What::Acknowledged => "确认消息（ack）",
        What::Requeued => "退回队列头部",
        What::Failed => "业务失败",
        What::PutAside => "消息连同原因被搁置",
        What::StillBlocked => "如此反复：后面的消息都过不去",
        What::LineDead => "线路吞掉所有发出的数据",
        What::LineRestored => "线路恢复",
        What::LineCut => "连接被重置",
        What::QueueBound => "有人补上了队列绑定",
        What::MarkersPurged => "清理旧标记",
        What::PurgeRefused => "清理过新的标记被拒绝",
        What::Replayed => "以相同 id 重新发布事件",
        What::MemoryLost => "Redis 丢失全部数据",
    }
}

const EVERYWHERE: &str = "任何数据库和任何中间件：内嵌队列，以及 MySQL 加 RabbitMQ。";

#[expect(clippy::too_many_lines, reason = "a text for each scenario")]
pub const fn story(id: Window) -> Story {
    match id {
        Window::CommitThenSend => Story {
            title: "先提交再发送，中间死亡",
            window: "订单已提交，进程在发送消息前死亡。下游永远不知道这笔订单。",
            naive: "先提交订单，再发布消息；在第三笔订单提交后死亡。",
            consign: "订单和事件在同一事务中提交；之后无论哪个 relay 运行，都会把它发布出去。",
            backends: EVERYWHERE,
        },
        Window::SendThenCommit => Story {
            title: "先发送再提交，中间死亡",
            window: "消息已发出，进程在提交订单前死亡。别人处理了一笔不存在的订单。",
            naive: "在未提交的事务里发布消息，以为这样不会遗漏；在第三次提交前死亡。",
            consign: "事件是同一事务中的一行：事务回滚，事件也不存在。",
            backends: EVERYWHERE,
        },
        Window::ClaimWithoutLease => Story {
            title: "两个 relay 读到同样的行",
            window: "为了保险，或因为一次部署，第二个 relay 启动了。两个都读取 NEW 的行并发布。",
            naive: "两个 relay 各自 SELECT 状态为 NEW 的行，发布，再标记 SENT。",
            consign: "认领时用 SKIP LOCKED 加锁（SQLite 用写锁），并以租约只交给一个 relay。",
            backends: EVERYWHERE,
        },
        Window::DurableWithoutConfirms => Story {
            title: "持久队列，但没有发布确认",
            window: "持久队列只保住它已有的消息。连接断开时还在途中的消息从未到达。",
            naive: "发布持久消息，不等待任何回答就标记 SENT；第二条之后线路中断。",
            consign: "SENT 必须有这条消息自己的确认；没有确认就是结果未知，以相同事件 id 重新发布。",
            backends: "RabbitMQ：线路吞掉数据后被切断。内嵌队列：队列文件被他人锁住，进程带着未完成的写入死亡。",
        },
        Window::ConfirmWithoutMandatory => Story {
            title: "有确认，没有 mandatory",
            window: "忘了绑定队列。中间件对无处可去的消息照样确认，因为它已尽其所能。",
            naive: "只等待确认，其他一概不看。",
            consign: "以 mandatory 发布，并把每个退回与其消息配对：不可路由就不是 SENT；行会等到队列绑定为止。",
            backends: "RabbitMQ 会确认并退回。内嵌队列：向主题绑定的队列插入了零行，而没有人检查行数。",
        },
        Window::TimeoutMarkedSent => Story {
            title: "把超时当作已发送",
            window: "中间件的回答没有按时到达。通常它已收到，于是标记 SENT，而这一次它没有收到。",
            naive: "超时后同样标记 SENT。",
            consign: "超时是结果未知，绝不是 SENT；通向 SENT 的类型必须携带证明。",
            backends: "RabbitMQ：线路吞掉消息。内嵌队列：队列文件被他人锁住。",
        },
        Window::SettleWithoutToken => Story {
            title: "停顿的 relay 迟到结算",
            window: "一个 relay 停顿超过租约：长时间垃圾回收、机器冻结。另一个接手并完成，随后前者恢复，写下它仍然相信的状态。",
            naive: "只按行 id 结算：它写的 NEW 覆盖了对方的 SENT，消息再次发出。",
            consign: "每次认领都有新的随机令牌，结算必须带上它；迟到的结算不改动任何行，并计为被 fence。",
            backends: EVERYWHERE,
        },
        Window::RetryWithNewId => Story {
            title: "重试时换了消息 id",
            window: "relay 在中间件确认之后、记录之前死亡。重试是对的，换新的消息 id 不对：消费者认不出它是副本。",
            naive: "每次发布都生成新的消息 id，消费者按消息 id 去重。",
            consign: "所有副本都带同一个事件 id，标记按业务键保存。",
            backends: EVERYWHERE,
        },
        Window::AckBeforeCommit => Story {
            title: "提交之前就确认",
            window: "消息已确认，消费者在提交业务效果前死亡。中间件已经忘记了它。",
            naive: "收到即确认（自动确认也一样），然后处理；在第三条消息处死亡。",
            consign: "确认需要许可，而只有提交才给出许可；消息会再次投递。",
            backends: EVERYWHERE,
        },
        Window::LostAckWithoutMarker => Story {
            title: "确认丢失，又没有标记",
            window: "效果已提交，消费者在确认前死亡。消息理所当然地再次到来。",
            naive: "提交效果，再确认，不保存任何标记。",
            consign: "标记与效果在同一事务中：第二份是重复，只需确认。",
            backends: EVERYWHERE,
        },
        Window::MarkerOutsideTransaction => Story {
            title: "标记在事务之外",
            window: "先单独写入标记，消费者在产生效果前死亡。消息再次到来，被当作重复。",
            naive: "先以主键插入消息 id，再开始业务事务。",
            consign: "标记与效果要么一起提交，要么都不提交。",
            backends: EVERYWHERE,
        },
        Window::RedisSetnxAlone => Story {
            title: "只靠 Redis SETNX",
            window: "Redis 与数据库无法一起提交。先写 Redis，崩溃就丢失效果；之后 Redis 遗忘，副本就造成重复。",
            naive: "先 SET NX，再产生效果；在第三条消息处死亡。之后 Redis 被清空，relay 重发第一条。",
            consign: "Redis 只是过滤器，在提交之后才写入，且只作提示；由数据库中的标记决定。",
            backends: "除 MySQL 和 RabbitMQ 外还需要 Redis：没有 Redis 就无从展示。",
        },
        Window::SelectThenInsert => Story {
            title: "先查询再写入",
            window: "两个消费者同时拿到同一消息的副本。都去查询，都没查到，都去执行。",
            naive: "SELECT 该订单是否已有记录；没有就加积分。",
            consign: "直接插入标记，由唯一键裁决；第二个等待、发现已被占用，然后比较内容。",
            backends: EVERYWHERE,
        },
        Window::IdOnlyDedup => Story {
            title: "同一键，内容不同",
            window: "同一个键带着另一个金额再次到来：更正、程序错误，或两个系统共用编号。当作重复就会消失，而且无人知晓。",
            naive: "在业务事务中记录键，除此之外什么都不比较。",
            consign: "同时比较内容。内容不同就是冲突，先记录，再确认消息。",
            backends: EVERYWHERE,
        },
        Window::BatchAckOverUnfinished => Story {
            title: "批量确认了未完成的消息",
            window: "多条消息并行处理。最后一条最先完成，于是确认到它为止的全部；此时进程死亡，其余仍在处理。",
            naive: "在已完成的最大编号处批量确认（或提交偏移量）。",
            consign: "只确认已返回的提交所覆盖的消息，逐条或按完整前缀。",
            backends: EVERYWHERE,
        },
        Window::RedeliveryStorm => Story {
            title: "重复投递风暴",
            window: "消费者在一批结束时才确认，却一再在此之前死亡：每次整批消息都会回来。",
            naive: "十条消息一起确认；在确认前死亡三次；没有标记。",
            consign: "同样的死亡：整批只提交一次，之后的副本都是重复。",
            backends: EVERYWHERE,
        },
        Window::PoisonAtTheHead => Story {
            title: "毒消息堵在队首",
            window: "有一条消息永远无法处理。退回后它又排在第一位，其他消息永远等在后面。",
            naive: "出错就把消息退回队列。",
            consign: "重试在数据库中等待，不堵在队首；最后一次之后，消息连同原因被搁置，算作已记录。",
            backends: EVERYWHERE,
        },
        Window::StaleOverwrite => Story {
            title: "旧版本覆盖新版本",
            window: "订单的两个版本乱序到达，例如在重试之后。两条都是新消息，但后到的是旧状态。",
            naive: "正确地记录消息 id，然后用后到的内容覆盖副本。",
            consign: "守卫在同一事务中保存每个聚合的版本：旧版本过期，不做改动。",
            backends: EVERYWHERE,
        },
        Window::PurgeBeforeHorizon => Story {
            title: "标记清理得太早",
            window: "为了让表保持小巧而删除标记。随后有人重放昨晚的事件，已没有任何东西认识它们。",
            naive: "夜间任务清空标记表。",
            consign: "清理命令知道重试与重放的期限，拒绝更短的保留时间；标记仍然在。",
            backends: EVERYWHERE,
        },
    }
}
