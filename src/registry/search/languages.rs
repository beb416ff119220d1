//! Words of other languages for what tools do, with the English words for them. One table; pure.
//!
//! Tools describe themselves in English, and people search in their own language. The words come from common
//! dictionaries, in the forms that people search for: German, Spanish, French, Portuguese, Italian, Russian, Chinese,
//! Japanese, Korean.

use std::collections::HashMap;
use std::sync::OnceLock;

use super::words::{self, is_cjk};

/// An English word, then the words for it.
const WORDS: [&str; 98] = [
    "create erstellen anlegen erzeugen crear creer créer criar creare создать создай 创建 新建 作成 생성 만들",
    "delete löschen entfernen eliminar borrar supprimer effacer excluir apagar eliminare cancellare удалить удали 删除 移除 削除 삭제",
    "list auflisten liste anzeigen listar lister elencare elenco lista список перечислить показать 列出 列表 一覧 목록",
    "read lesen leer lire ler leggere читать прочитать прочти 读取 阅读 読む 読み 읽기",
    "get holen abrufen obtener obtenir récupérer obter ottenere получить 获取 取得 가져",
    "search suchen suche buscar búsqueda chercher rechercher recherche procurar pesquisar cercare ricerca искать поиск найти 搜索 查找 検索 검색",
    "find finden encontrar trouver trovare найти 寻找 찾기",
    "write schreiben escribir écrire escrever scrivere писать записать 写入 編写 書く 쓰기",
    "update aktualisieren actualizar jour atualizar aggiornare обновить обнови 更新 업데",
    "edit bearbeiten ändern editar modificar modifier éditer alterar modificare изменить редактировать 编辑 修改 編集 変更 수정 편집",
    "add hinzufügen añadir agregar ajouter adicionar aggiungere добавить добавь 添加 追加 추가",
    "send senden schicken verschicken enviar mandar envoyer inviare отправить отправь 发送 送信 보내 전송",
    "run ausführen ejecutar exécuter executar eseguire запустить выполнить 运行 执行 実行 실행",
    "start starten iniciar empezar démarrer commencer começar avviare начать 启动 开始 起動 開始 시작",
    "stop stoppen anhalten beenden detener parar arrêter fermare остановить 停止 중지",
    "copy kopieren copiar copier copiare копировать скопировать 复制 コピ 복사",
    "move verschieben mover déplacer spostare переместить 移动 移動 이동",
    "rename umbenennen renombrar renommer renomear rinominare переименовать 重命 改名 이름",
    "convert umwandeln umrechnen konvertieren convertir converter convertire преобразовать конвертировать 转换 変換 변환",
    "translate übersetzen traducir traduire traduzir tradurre перевести 翻译 翻訳 번역",
    "download herunterladen descargar télécharger baixar scaricare скачать загрузить 下载 다운",
    "upload hochladen subir téléverser carregar caricare загрузить 上传 업로",
    "open öffnen abrir ouvrir aprire открыть 打开 開く 열기",
    "close schließen cerrar fermer fechar chiudere закрыть 关闭 閉じ 닫기",
    "compare vergleichen comparar comparer confrontare сравнить 比较 比較 비교",
    "count zählen anzahl contar compter conteggio contare сколько количество 数量 计数 개수",
    "check prüfen überprüfen comprobar verificar vérifier controllare проверить 检查 確認 확인",
    "explain erklären explicar expliquer spiegare объяснить 解释 説明 설명",
    "generate generieren generar générer gerar generare сгенерировать 生成",
    "draw zeichnen dibujar dessiner desenhar disegnare нарисовать 画图 描画 그리",
    "merge zusammenführen fusionar fusionner mesclar unire объединить слить 合并 統合 병합",
    "execute ausführen ejecutar exécuter executar выполнить 执行 実行",
    "install installieren instalar installer installare установить 安装 설치",
    "change ändern änderungen cambiar cambios changer changement mudar mudança cambiare изменения 变更 变化 변경",
    "reply antworten responder répondre rispondere ответить 回复 返信 답장",
    "watch beobachten überwachen vigilar surveiller monitorar следить 监视 監視 감시",
    "file datei dateien archivo archivos fichero ficheros fichier fichiers arquivo arquivos file файл файлы файла файлов 文件 ファ 파일",
    "folder ordner verzeichnis carpeta carpetas directorio dossier répertoire pasta cartella папка папку папке каталог 目录 フォ 폴더",
    "document dokument documento document документ 文档 文書 문서",
    "text texto texte testo текст 文本 文字 텍스",
    "message nachricht nachrichten mensaje mensajes message mensagem messaggio сообщение сообщения 消息 メッ 메시",
    "channel kanal canal canale канал 频道 チャ 채널",
    "user benutzer nutzer usuario usuarios utilisateur utilisateurs usuário usuários utente utenti пользователь пользователя пользователей 用户 ユー 사용",
    "group gruppe grupo groupe gruppo группа группу 组 グル 그룹",
    "role rolle rol rôle papel ruolo роль 角色 役割 역할",
    "permission berechtigung rechte permiso permisos autorisation permissão permesso права разрешение 权限 権限 권한",
    "password passwort kennwort contraseña senha пароль 密码 パス 비밀 passwörter",
    "key schlüssel clave llave clé chave chiave ключ 密钥 键",
    "image bild bilder imagen imágenes image imagem immagine изображение картинка 图片 图像 画像 이미",
    "chart diagramm gráfico grafik graphique grafico график диаграмма диаграмму 图表 グラ 차트",
    "pie torte kuchen kreis pastel camembert pizza torta круговая 饼图 円グ",
    "map karte mapa carte mappa карта 地图 지도",
    "time zeit uhrzeit hora heure ora время 时间 時間 時刻 시간",
    "date datum fecha дата 日期 날짜",
    "timezone zeitzone horaria fuseau fuso часовой 时区",
    "place ort lugar lieu luogo место 地点 場所 장소",
    "address adresse dirección endereço indirizzo адрес 地址 住所 주소",
    "distance entfernung distancia distance distância distanza расстояние 距离 距離 거리",
    "route weg strecke ruta itinéraire rota percorso маршрут 路线 経路 경로",
    "page seite página page pagina страница страницу 页面 网页 ペー 페이",
    "browser navegador navigateur браузер 浏览器 ブラ",
    "screenshot bildschirmfoto captura capture скриншот снимок 截图 截屏 スク 스크",
    "button knopf schaltfläche botón bouton botão pulsante кнопка 按钮 ボタ 버튼",
    "click klicken clic cliquer clicar cliccare нажать кликнуть 点击 クリ 클릭",
    "branch zweig rama branche ramo ветка ветку 分支 ブラ 브랜",
    "issue problem incidencia problème проблема задача 问题 議題 이슈",
    "repository repositorio dépôt repositório репозиторий 仓库 リポ 저장",
    "table tabelle tabellen tabla tablas tableau tabela tabella таблица таблицу таблиц 表格 数据表 テー 테이",
    "record datensatz registro registros enregistrement запись записи 记录 記録 레코",
    "database datenbank bd données banco база базу 数据 デー 데이",
    "query abfrage consulta requête interrogazione запрос 查询 照会 쿼리",
    "paper artikel aufsatz artículo article artigo articolo статья статьи статью 论文 논문",
    "log protokoll protokolle registros journal journaux журнал логи 日志 ログ 로그",
    "price preis preise precio precios prix preço prezzo цена цены 价格 価格 가격",
    "note notiz notizen nota notas note заметка заметку 笔记 ノー 메모",
    "insert einfügen insertar insérer inserir inserire вставить 插入 挿入 삽입",
    "column spalte spalten columna columnas colonne colonnes coluna colonna столбец колонку 列名 カラ 컬럼",
    "row zeile zeilen fila filas ligne lignes linha riga строка строку 行目",
    "window fenster ventana fenêtre janela finestra окно 窗口 ウィ",
    "error fehler error errores erreur erreurs erro errore ошибка ошибки 错误 エラ 오류",
    "version versión versão versione версия версию 版本 バー 버전",
    "project projekt proyecto projet projeto progetto проект проекты 项目 プロ 프로",
    "comment kommentar kommentare comentario comentarios commentaire commentaires comentário commento комментарий 评论 コメ 댓글",
    "task aufgabe aufgaben tarea tareas tâche tâches tarefa attività задачу 任务 タス 작업",
    "event termin termine evento eventos événement rendez-vous событие 日程 予定 일정",
    "mail email correo courriel posta почта письмо 邮件 メー 메일",
    "calendar kalender calendario calendrier calendário календарь 日历 カレ 달력",
    "link verknüpfung enlace enlaces lien liens collegamento ссылка 链接 リン 링크",
    "new neu neue neuen nuevo nueva nouveau nouvelle novo nova nuovo новый новую 新的 新し 새로",
    "cost kosten coste costo coût custo стоимость 费用 費用 비용",
    "weather wetter clima météo tempo погода 天气 天気 날씨",
    "server server servidor serveur сервер 服务器 サー 서버",
    "container behälter contenedor conteneur контейнер 容器 コン 컨테",
    "status zustand estado état stato статус 状态 状態 상태",
    "history verlauf historial historique histórico cronologia история 历史 履歴 기록",
    "tag schlagwort etiqueta étiquette тег 标签 タグ 태그",
    "field feld felder campo campos champ champs поле 字段 項目 필드",
    "size größe tamaño taille tamanho dimensione размер 大小 サイ 크기",
];

/// Returns the English words, as stems, for a word of another language, given by its stem.
pub(super) fn meant(stem: &str) -> &'static [String] {
    static TABLE: OnceLock<HashMap<String, Vec<String>>> = OnceLock::new();
    let table = TABLE.get_or_init(|| {
        let mut table: HashMap<String, Vec<String>> = HashMap::new();
        for line in WORDS {
            let (english, others) = line.split_once(' ').unwrap_or((line, ""));
            let english = words::all(english);
            for other in others.split(' ') {
                let all = words::all(other);
                // For a language without spaces, a word is known by its first pair of characters.
                let known = if other.chars().any(is_cjk) { &all[..all.len().min(1)] } else { &all[..] };
                for stem in known.iter().filter(|stem| !english.contains(stem)) {
                    let meant = table.entry(stem.clone()).or_default();
                    meant.extend(english.iter().filter(|word| !meant.contains(word)).cloned().collect::<Vec<_>>());
                }
            }
        }
        table
    });
    table.get(stem).map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_another_language_means_english_ones() {
        let of = |text: &str| words::all(text).iter().flat_map(|word| meant(word)).cloned().collect::<Vec<_>>();
        assert_eq!(of("Datei lesen"), ["file", "read"]);
        assert_eq!(of("создать ветку"), ["creat", "branch"]);
        assert_eq!(of("搜索文件"), ["search", "file"]);
        assert_eq!(of("list files"), [""; 0]);
    }
}
